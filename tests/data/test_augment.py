"""A batch's augmentation equals the samples' own, one by one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from numpy_vit.data import augment
from numpy_vit.data.affine import random_affine
from numpy_vit.data.augment import Augmentation
from numpy_vit.data.randomness import sample_rng
from numpy_vit.data.transforms import horizontal_flip, random_crop


def pictures(n=23, channels=3, height=6, width=5):
    return np.random.default_rng(1).integers(0, 256, (n, channels, height, width), np.uint8)


@settings(max_examples=40)
@given(
    st.integers(0, 3),
    st.booleans(),
    st.sampled_from(["constant", "reflect"]),
    st.sampled_from([0, 0.5, 2]),
    st.integers(0, 9),
)
def test_a_batch_equals_its_samples(padding, flip, mode, affine, seed):
    images, indices = pictures(), np.random.default_rng(seed).permutation(1000)[:23]
    repeat = seed % 3
    result = Augmentation(padding, flip, mode, affine).apply(images, seed, 4, indices, repeat)
    np.testing.assert_array_equal(images, pictures())
    assert result.dtype == np.uint8
    for image, index, augmented in zip(images, indices, result, strict=True):
        rng = sample_rng(seed, 4, int(index), repeat)
        expected = random_crop(image, padding, rng, mode) if padding else image
        expected = horizontal_flip(expected, rng) if flip else expected
        expected = random_affine(expected, affine, rng) if affine else expected
        np.testing.assert_array_equal(augmented, expected)


def test_batch_size_and_order_do_not_matter(monkeypatch):
    images, indices, both = pictures(), np.arange(100, 123), Augmentation(2, True)
    whole = both.apply(images, 7, 1, indices)
    for size in (1, 4, 10):
        parts = [both.apply(images[i : i + size], 7, 1, indices[i : i + size]) for i in range(0, 23, size)]
        np.testing.assert_array_equal(np.concatenate(parts), whole)
    shuffled = np.random.default_rng(0).permutation(23)
    np.testing.assert_array_equal(both.apply(images[shuffled], 7, 1, indices[shuffled]), whole[shuffled])
    monkeypatch.setattr(augment, "CHUNK", 200)  # two images at once
    np.testing.assert_array_equal(both.apply(images, 7, 1, indices), whole)


def test_seed_epoch_and_repeat_matter():
    images, indices, both = pictures(), np.arange(23), Augmentation(2, True)
    results = [both.apply(images, *arguments) for arguments in [(0, 0, indices), (1, 0, indices), (0, 1, indices)]]
    results.append(both.apply(images, 0, 0, indices, repeat=1))
    assert len({result.tobytes() for result in results}) == 4


def test_nothing_to_do_is_not_done():
    images = pictures()
    assert Augmentation().apply(images, 0, 0, np.arange(23)) is images


def test_wrong_arguments():
    with pytest.raises(ValueError, match="not -2"):
        Augmentation(padding=-2)
    with pytest.raises(ValueError, match="'wrap'"):
        Augmentation(mode="wrap")
    with pytest.raises(ValueError, match=r"\(23, 3, 6, 5\).*\(22,\)"):
        Augmentation(1).apply(pictures(), 0, 0, np.arange(22))
    with pytest.raises(ValueError, match="not -1"):
        Augmentation(1).apply(pictures(), 0, 0, np.arange(-1, 22))
    with pytest.raises(ValueError, match=r"\(6, 5\), not 5"):
        Augmentation(5, mode="reflect").apply(pictures(), 0, 0, np.arange(23))
