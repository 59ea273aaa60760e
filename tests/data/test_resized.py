"""Resizing a data set is Pillow's resizing of each image, at once or when asked."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from numpy_vit.data import digits
from numpy_vit.data.dataset import Dataset, Split
from numpy_vit.data.resized import ResizedDataset, resize, resized


def colours(name: str, count: int = 9) -> Dataset:
    rng = np.random.default_rng(count)
    return Dataset(name, rng.integers(0, 256, (count, 3, 8, 12), np.uint8), np.arange(count) % 2, ("a", "b"))


@pytest.mark.parametrize("size", [(16, 24), (4, 6), (8, 8), (20, 7)])
def test_each_image_is_resized_by_pillow_and_cropped(size: tuple[int, int]) -> None:
    images = colours("x").images
    scale = max(size[0] / 8, size[1] / 12)
    height, width = round(8 * scale), round(12 * scale)
    left, top = round((width - size[1]) / 2), round((height - size[0]) / 2)
    for found, image in zip(resize(images, size), images, strict=True):
        picture = Image.fromarray(image.transpose(1, 2, 0)).resize((width, height), Image.Resampling.BICUBIC)
        expected = picture.crop((left, top, left + size[1], top + size[0]))
        np.testing.assert_array_equal(found, np.asarray(expected).transpose(2, 0, 1))


def test_greys_and_a_constant() -> None:
    split = resized(digits.load(), (16, 16))
    assert split.train.shape == (1, 16, 16)
    grey = Image.fromarray(digits.load().test.images[5, 0]).resize((16, 16), Image.Resampling.BICUBIC)
    np.testing.assert_array_equal(split.test.take([5]).images[0, 0], grey)
    assert (resize(np.full((2, 3, 5, 5), 77, np.uint8), (9, 3)) == 77).all()


def test_later_is_the_same_as_now() -> None:
    data = Split(colours("train", 130), colours("test"))
    now, later = resized(data, (10, 10)), resized(data, (10, 10), most_in_memory=1000)
    assert isinstance(now.train, Dataset)
    assert isinstance(later.train, ResizedDataset)
    assert isinstance(later.test, ResizedDataset)
    chosen = [129, 0, 64]
    for whole in (later.train, later.train.subset(range(130))):
        np.testing.assert_array_equal(now.train.take(chosen).images, whole.take(chosen).images)
    assert len(later.train) == 130
    assert later.train.name == "train"
    assert later.train.shape == now.train.shape == (3, 10, 10)
    np.testing.assert_array_equal(later.train.labels, now.train.labels)


def test_the_size_it_has_changes_nothing() -> None:
    data = Split(colours("train"), colours("test"))
    assert resized(data, None) is data
    assert resized(data, (8, 12)) is data


def test_the_fingerprint_knows_the_size() -> None:
    data = colours("x")
    assert ResizedDataset(data, (4, 4)).fingerprint() != ResizedDataset(data, (4, 5)).fingerprint()
    assert ResizedDataset(data, (4, 4)).fingerprint(1) != ResizedDataset(data, (4, 4)).fingerprint()
