"""Streamed sets decode the same bits whatever the threads, never all at once, and outlive a broken file."""

from __future__ import annotations

import shutil
import tracemalloc
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from numpy_vit.data import dataset, preprocessing
from numpy_vit.data.folders import load_folder
from numpy_vit.data.streamed import StreamedDataset, cover
from numpy_vit.errors import DataError
from numpy_vit.training.evaluate import evaluate

COUNT = 60


@pytest.fixture
def streamed(tmp_path: Path) -> StreamedDataset:
    """COUNT photographs in two classes; number n has the colour noise of seed n."""
    rng = np.random.default_rng(0)
    for number in range(COUNT):
        path = tmp_path / "train" / "ab"[number % 2] / f"{number:03}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (20, 30, 3), np.uint8)).save(path)
    shutil.copytree(tmp_path / "train", tmp_path / "test")
    made = load_folder(tmp_path, (8, 8), most_in_memory=0).train
    assert isinstance(made, StreamedDataset)
    return made


def test_the_bits_do_not_depend_on_the_threads(streamed: StreamedDataset) -> None:
    order = np.random.default_rng(1).permutation(COUNT)
    one = replace(streamed, threads=1).take(order)
    for threads in (2, 7):
        many = replace(streamed, threads=threads).take(order)
        assert many.images.tobytes() == one.images.tobytes()
        assert many.labels.tolist() == one.labels.tolist() == streamed.labels[order].tolist()
    for row, index in enumerate(order[:5]):
        with Image.open(streamed.root / streamed.paths[index]) as opened:
            small = opened.resize((12, 8), Image.Resampling.BICUBIC).crop((2, 0, 10, 8))
        np.testing.assert_array_equal(one.images[row], np.asarray(small).transpose(2, 0, 1))


def test_indices_mean_what_they_mean_in_memory(streamed: StreamedDataset) -> None:
    inside = streamed.take(range(COUNT))
    for indices in ([3, 0, 3], [-1], np.arange(COUNT) % 7 == 0):
        expected, found, files = inside.take(indices), streamed.take(indices), streamed.subset(indices)
        np.testing.assert_array_equal(found.images, expected.images)
        np.testing.assert_array_equal(files.take(range(len(files))).images, expected.images)
        np.testing.assert_array_equal(files.labels, expected.labels)
    with pytest.raises(DataError, match="60 samples"):
        streamed.take([])
    with pytest.raises(IndexError):
        streamed.take([COUNT])


def test_a_subset_decodes_nothing(streamed: StreamedDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "open", None)
    part = streamed.subset([5, 1])
    assert part.paths == (streamed.paths[5], streamed.paths[1])
    assert part.shape == (3, 8, 8)
    part.fingerprint()


def test_the_fingerprint_knows_names_lengths_labels_size_and_order(streamed: StreamedDataset, tmp_path: Path) -> None:
    known = streamed.fingerprint()
    assert streamed.fingerprint(1) != known
    changed = [
        replace(streamed, size=(8, 9)),
        replace(streamed, labels=1 - streamed.labels),
        replace(streamed, bytes_of=streamed.bytes_of + (np.arange(COUNT) == 9)),
        replace(streamed, paths=("a/x.jpg", *streamed.paths[1:])),
        streamed.subset(range(1, COUNT)),
        streamed.subset(range(COUNT)[::-1]),
    ]
    assert len({known, *(one.fingerprint() for one in changed)}) == len(changed) + 1
    shutil.copytree(tmp_path / "train", tmp_path / "elsewhere" / "train")
    shutil.copytree(tmp_path / "test", tmp_path / "elsewhere" / "test")
    assert load_folder(tmp_path / "elsewhere", (8, 8), most_in_memory=0).train.fingerprint() == known


def test_files_that_vanish_or_change_during_a_run_become_grey(streamed: StreamedDataset, tmp_path: Path) -> None:
    same = load_folder(tmp_path, most_in_memory=0).train
    (streamed.root / streamed.paths[4]).unlink()
    Image.new("RGB", (31, 20)).save(streamed.root / streamed.paths[7])
    found = same.take([7, 3, 4])
    assert (found.images[[0, 2]] == 128).all()
    assert not (found.images[1] == 128).all()
    vanished, changed = same.skipped
    assert vanished == f"{streamed.paths[4]}: no such image file"
    assert changed == f"{streamed.paths[7]}: 31x20 pixels now, 30x20 before"
    assert (streamed.take([7]).images == 0).all()  # it resizes anyway
    assert streamed.subset([1]).skipped == streamed.skipped == ()


def test_nothing_readable_is_a_data_error(streamed: StreamedDataset) -> None:
    shutil.rmtree(streamed.root)
    with pytest.raises(DataError, match=r"none of its 60 images can be read; the first: a/000\.jpg"):
        streamed.decoded()


def test_wrong_lengths_are_programming_errors(streamed: StreamedDataset) -> None:
    with pytest.raises(ValueError, match="60 paths need as many"):
        replace(streamed, labels=streamed.labels[1:])


def test_a_set_larger_than_memory_never_gets_into_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset, "CHUNK", 1 << 15)  # a small memory, so that few images are larger
    monkeypatch.setattr(preprocessing, "PIECE", 16)
    path = tmp_path / "0.jpg"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (96, 96, 3), np.uint8)).save(path)
    count = 300
    many = StreamedDataset(
        "many", tmp_path, (path.name,) * count, np.ones(count, np.int64), np.arange(count) % 2, ("a", "b"), (96, 96)
    )
    config: Any = SimpleNamespace(num_patches=144, num_prefix_tokens=1)
    model: Any = SimpleNamespace(predict=lambda params, images, config: np.zeros((len(images), 2), np.float32))
    tracemalloc.start()
    measured = preprocessing.Preprocessing.of(many)
    found = evaluate(model, {"a": np.zeros(1, np.float32)}, config, many, measured, workers=2)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.accuracy == 0.5
    whole = count * 3 * 96 * 96
    assert peak < whole / 3, f"{peak / whole:.0%} of the decoded images"


def test_covering_keeps_the_shape_and_the_centre() -> None:
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 60, 3), np.uint8))
    expected = picture.resize((30, 20), Image.Resampling.BICUBIC).crop((10, 0, 20, 20))
    np.testing.assert_array_equal(cover(picture, (20, 10)), expected)
    assert cover(picture, (40, 60)) is picture
    with pytest.raises(DataError, match="less extreme"):
        cover(Image.new("RGB", (100_000, 1)), (224, 224))
