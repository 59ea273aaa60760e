"""Normalisation against the formula; crops and flips by pixel identity."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from numpy_vit.data.transforms import horizontal_flip, normalise, pad, random_crop

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


def every_byte():
    values = np.arange(256, dtype=np.uint8)
    return np.stack([values, values[::-1], np.roll(values, 7)]).reshape(1, 3, 16, 16)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-14), (np.float32, 6e-7)])
def test_normalise_equals_the_formula(dtype, tolerance):
    images = every_byte()
    expected = (images / 255 - np.reshape(MEAN, (3, 1, 1))) / np.reshape(STD, (3, 1, 1))
    result = normalise(images, MEAN, STD, dtype)
    assert result.dtype == dtype
    np.testing.assert_allclose(result, expected, rtol=0, atol=tolerance)


def test_normalise_gives_contiguous_float32_without_large_temporaries():
    images = np.random.default_rng(0).integers(0, 256, (64, 32, 31, 3), np.uint8).transpose(0, 3, 1, 2)
    before = images.copy()
    tracemalloc.start()
    result = normalise(images, MEAN, STD)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert result.dtype == np.float32
    assert result.flags.c_contiguous
    assert peak < 1.2 * result.nbytes
    np.testing.assert_array_equal(result[5:6], normalise(images[5:6], MEAN, STD))
    np.testing.assert_array_equal(images, before)


def test_normalise_refuses():
    images = every_byte()
    with pytest.raises(TypeError, match="float64"):
        normalise(images / 255, MEAN, STD)
    with pytest.raises(TypeError, match="int32"):
        normalise(images, MEAN, STD, np.int32)
    with pytest.raises(ValueError, match=r"\(1, 3, 16, 16\)"):
        normalise(images, MEAN[:1], STD[:1])
    with pytest.raises(ValueError, match="positive"):
        normalise(images, MEAN, (0.2, 0.0, 0.2))
    with pytest.raises(ValueError, match="positive"):
        normalise(images, MEAN, (0.2, float("nan"), 0.2))


def image():
    return np.arange(1, 2 * 4 * 5 + 1, dtype=np.uint8).reshape(2, 4, 5)


def test_reflection_leaves_the_edge_out():
    assert pad(np.array([[1, 2, 3], [4, 5, 6]], np.uint8), 1, "reflect").tolist() == [
        [5, 4, 5, 6, 5],
        [2, 1, 2, 3, 2],
        [5, 4, 5, 6, 5],
        [2, 1, 2, 3, 2],
    ]


@given(st.integers(0, 2**32), st.integers(0, 3), st.sampled_from(["constant", "reflect"]))
def test_a_crop_is_a_window_of_the_padded_image(seed, padding, mode):
    before = image()
    crop = random_crop(before, padding, np.random.default_rng(seed), mode)
    np.testing.assert_array_equal(before, image())
    assert crop.shape == (2, 4, 5)
    assert crop.dtype == np.uint8
    windows = [
        np.stack(
            [
                [
                    [_pixel(channel, y, x, mode) for x in range(left - padding, left - padding + 5)]
                    for y in range(top - padding, top - padding + 4)
                ]
                for channel in image()
            ]
        )
        for top in range(2 * padding + 1)
        for left in range(2 * padding + 1)
    ]
    assert any(np.array_equal(crop, window) for window in windows)


def _pixel(channel, y, x, mode):
    height, width = channel.shape
    if mode == "constant":
        return channel[y, x] if 0 <= y < height and 0 <= x < width else 0
    return channel[min(abs(y), 2 * (height - 1) - abs(y)), min(abs(x), 2 * (width - 1) - abs(x))]


def test_every_window_and_both_sides_come_equally_often():
    rng = np.random.default_rng(0)
    single = np.zeros((1, 3, 3), np.uint8)
    single[0, 1, 1] = 1
    crops = sum(random_crop(single, 1, rng).astype(int) for _ in range(9000))[0]
    assert np.abs(crops - 1000).max() < 150  # five standard deviations
    edge = np.array([[[1, 0]]], np.uint8)
    flips = sum(horizontal_flip(edge, rng).astype(int) for _ in range(4000))[0, 0]
    assert abs(flips[0] - 2000) < 160
    assert flips.sum() == 4000


def test_a_flip_mirrors_x_only():
    outcomes = {horizontal_flip(image(), np.random.default_rng(seed)).tobytes() for seed in range(20)}
    mirrored = image()[:, :, [4, 3, 2, 1, 0]]
    assert outcomes == {image().tobytes(), mirrored.tobytes()}


def test_results_are_copies():
    before = image()
    for seed in range(4):
        horizontal_flip(before, np.random.default_rng(seed))[:] = 0
        random_crop(before, 0, np.random.default_rng(seed))[:] = 0
    np.testing.assert_array_equal(before, image())


def test_what_cannot_be_padded():
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="not -1"):
        random_crop(image(), -1, rng)
    with pytest.raises(ValueError, match=r"\(4, 5\), not 4"):
        random_crop(image(), 4, rng, "reflect")
    with pytest.raises(ValueError, match="'edge'"):
        random_crop(image(), 1, rng, "edge")
