"""MNIST's folder: every spelling of its files, and what is said when something is missing."""

import gzip
import hashlib
from pathlib import Path

import numpy as np
import pytest

from numpy_vit.data import mnist
from numpy_vit.data.dataset import statistics
from numpy_vit.data.idx import write_idx
from numpy_vit.errors import DataError

DEBIAN = Path(mnist.DEBIAN_FASHION_MNIST)
needs_fashion_mnist = pytest.mark.skipif(
    not DEBIAN.is_dir(), reason=f"Fashion-MNIST is not installed: {mnist.DEBIAN_COMMAND}"
)
STEMS = ["train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"]


def write(folder, rename=lambda stem: f"{stem}.gz", unpack=False, sizes=(12, 12, 5, 5), side=28):
    arrays = {}
    for stem, n in zip(STEMS, sizes, strict=True):
        rng = np.random.default_rng(len(arrays))
        if "images" in stem:
            arrays[stem] = rng.integers(0, 256, (n, side, side), np.uint8)
        else:
            arrays[stem] = rng.integers(0, 10, n).astype(np.uint8)
        path = folder / rename(stem)
        write_idx(path, arrays[stem])
        if unpack:
            path.write_bytes(gzip.decompress(path.read_bytes()))
    return arrays


@pytest.mark.parametrize(
    ("rename", "unpack"),
    [
        (lambda stem: f"{stem}.gz", False),
        (lambda stem: stem, True),
        (lambda stem: stem.replace("-idx", ".idx"), True),
        (lambda stem: stem.replace("-idx", ".idx") + ".gz", False),
        (lambda stem: f"{stem}.gz", True),  # a browser unpacked it and kept the name
    ],
)
def test_every_spelling_loads(tmp_path, rename, unpack):
    arrays = write(tmp_path, rename, unpack)
    split = mnist.load_mnist(tmp_path)
    for part, prefix in ((split.train, "train"), (split.test, "t10k")):
        np.testing.assert_array_equal(part.images[:, 0], arrays[f"{prefix}-images-idx3-ubyte"])
        np.testing.assert_array_equal(part.labels, arrays[f"{prefix}-labels-idx1-ubyte"])
    assert split.train.images.shape == (12, 1, 28, 28)
    assert split.train.labels.dtype == np.int64
    assert split.train.class_names == tuple("0123456789")


def message(load, folder):
    with pytest.raises(DataError) as caught:
        load(folder)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_missing_files_are_named_with_their_address(tmp_path):
    text = message(mnist.load_mnist, tmp_path / "nowhere")
    assert "nowhere" in text
    assert "https://ossci-datasets.s3.amazonaws.com/mnist/" in text
    text = message(mnist.load_fashion_mnist, tmp_path / "nowhere")
    assert "apt-get install dataset-fashion-mnist" in text
    assert "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/" in text
    write(tmp_path)
    for stem in STEMS:
        path = tmp_path / f"{stem}.gz"
        content = path.read_bytes()
        path.unlink()
        text = message(mnist.load_mnist, tmp_path)
        assert f"{tmp_path} has no {stem}" in text
        assert "https://ossci-datasets" in text
        path.write_bytes(content)
    mnist.load_mnist(tmp_path)


def test_files_that_do_not_belong_together(tmp_path):
    write(tmp_path, sizes=(12, 11, 5, 5))
    assert "mnist train has 12 images and 11 labels" in message(mnist.load_mnist, tmp_path)
    write(tmp_path, side=27)
    assert "27x27" in message(mnist.load_mnist, tmp_path)
    write(tmp_path)
    write_idx(tmp_path / "t10k-labels-idx1-ubyte.gz", np.array([0, 1, 2, 3, 10], np.uint8))
    assert "mnist test has label 10" in message(mnist.load_mnist, tmp_path)
    write_idx(tmp_path / "t10k-labels-idx1-ubyte.gz", np.zeros((5, 28, 28), np.uint8))
    assert "holds images (magic 2051)" in message(mnist.load_mnist, tmp_path)


@needs_fashion_mnist
def test_fashion_mnist_is_the_published_one():
    split = mnist.load_fashion_mnist(DEBIAN)
    assert split.train.images.shape == (60_000, 1, 28, 28)
    assert split.test.images.shape == (10_000, 1, 28, 28)
    assert np.bincount(split.train.labels).tolist() == [6000] * 10
    assert np.bincount(split.test.labels).tolist() == [1000] * 10
    # The first labels as the authors' README shows them: an ankle boot, then two T-shirts.
    assert [split.train.class_names[label] for label in split.train.labels[:3]] == [
        "Ankle boot",
        "T-shirt/top",
        "T-shirt/top",
    ]
    mean, std = statistics(split.train.images)
    assert round(mean[0], 4) == 0.2860  # the numbers everybody normalises Fashion-MNIST with
    assert round(std[0], 4) == 0.3530


@needs_fashion_mnist
def test_fashion_mnist_pixels_are_the_bytes_of_the_file():
    content = gzip.decompress((DEBIAN / "t10k-images-idx3-ubyte.gz").read_bytes())
    images = mnist.load_fashion_mnist().test.images
    assert hashlib.sha256(images.tobytes()).digest() == hashlib.sha256(content[16:]).digest()
