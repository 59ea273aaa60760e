"""Random erasing: what a box is and how often, and timm's own with the same numbers."""

import math

import numpy as np
import pytest

from numpy_vit.data import random_erasing
from numpy_vit.data.random_erasing import RandomErasing, draw_box
from numpy_vit.data.randomness import ERASING, sample_rng, sample_rngs


def pictures(n=40, channels=3, height=16, width=12, dtype=np.float32):
    return np.random.default_rng(1).normal(5, 1, (n, channels, height, width)).astype(dtype)


def test_one_box_becomes_zero_and_the_rest_stays():
    images = pictures()
    erased = RandomErasing(1.0).apply(images, 0, 0, np.arange(40))
    np.testing.assert_array_equal(images, pictures())
    assert erased.dtype == np.float32
    for before, after in zip(images, erased, strict=True):
        gone = (after != before).all(0)
        np.testing.assert_array_equal(after, np.where(gone, 0, before))
        rows, columns = np.flatnonzero(gone.any(1)), np.flatnonzero(gone.any(0))
        assert gone[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1].all()  # one box, of all channels
        assert gone.sum() == len(rows) * len(columns)


def test_areas_and_shapes_fill_their_ranges():
    rng = np.random.default_rng(0)
    boxes = np.array([draw_box((2000, 2000), rng) for _ in range(3000)])
    top, left, height, width = boxes.T
    area, ratio = height * width / 4e6, np.log(height / width)
    assert 0.0199 < area.min() < 0.021
    assert 0.332 < area.max() < 0.3335
    assert abs(area.mean() - (0.02 + 1 / 3) / 2) < 0.01
    assert math.log(0.3) - 0.01 < ratio.min() < math.log(0.31)
    assert abs(ratio.mean()) < 0.07
    assert (top + height <= 2000).all()
    assert (left + width <= 2000).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_noise_is_normal_and_of_the_images_type(dtype):
    images = np.full((300, 1, 20, 20), 100, dtype)
    erased = RandomErasing(1.0, "pixel").apply(images, 0, 0, np.arange(300))
    noise = erased[erased != 100]
    assert erased.dtype == dtype
    assert abs(noise.mean()) < 5 / math.sqrt(len(noise))
    assert abs(noise.std() - 1) < 5 / math.sqrt(2 * len(noise))


def test_the_probability_is_kept():
    images = pictures(2000, 1, 8, 8)
    for prob in (0.0, 0.25):
        changed = (RandomErasing(prob).apply(images, 3, 0, np.arange(2000)) != images).any((1, 2, 3)).mean()
        assert abs(changed - prob) < 5 * math.sqrt(0.25 * 0.75 / 2000) * (prob > 0) + 1e-9


def test_batches_and_order_do_not_matter_but_the_rest_does():
    images, indices, repeats = pictures(), np.arange(60, 100), np.arange(40) % 3
    erasing = RandomErasing(0.7, "pixel")
    whole = erasing.apply(images, 7, 1, indices, repeats)
    for i in (0, 3, 39):
        np.testing.assert_array_equal(erasing.apply(images[i : i + 1], 7, 1, [60 + i], i % 3)[0], whole[i])
    np.testing.assert_array_equal(erasing.apply(images[::-1], 7, 1, indices[::-1], repeats[::-1])[::-1], whole)
    others = [(8, 1, indices, repeats), (7, 2, indices, repeats), (7, 1, indices, 0), (7, 1, indices + 1, repeats)]
    assert len({erasing.apply(images, *other).tobytes() for other in others} | {whole.tobytes()}) == 5


def test_its_numbers_are_not_the_augmentations():
    assert next(sample_rngs(7, 1, [5], 2, ERASING)).random() != sample_rng(7, 1, 5, 2).random()


def test_where_no_box_fits_nothing_happens():
    images = pictures(5, 3, 1, 12)
    np.testing.assert_array_equal(RandomErasing(1.0).apply(images, 0, 0, np.arange(5)), images)


def test_what_is_refused():
    with pytest.raises(ValueError, match=r"not 1\.5"):
        RandomErasing(1.5)
    with pytest.raises(ValueError, match="'rand'"):
        RandomErasing(0.5, "rand")
    with pytest.raises(TypeError, match="uint8"):
        RandomErasing().apply(np.zeros((1, 3, 4, 4), np.uint8), 0, 0, [0])
    with pytest.raises(ValueError, match=r"\(40, 3, 16, 12\).*\(39,\)"):
        RandomErasing().apply(pictures(), 0, 0, np.arange(39))
    with pytest.raises(ValueError, match=r"\(40,\).*\(39,\)"):
        RandomErasing().apply(pictures(), 0, 0, np.arange(40), np.arange(39))
    with pytest.raises(ValueError, match="not -1"):
        RandomErasing().apply(pictures(), 0, 0, np.arange(40), -1)


@pytest.mark.framework
@pytest.mark.parametrize("mode", random_erasing.MODES)
@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (3, 9, 40), (1, 2, 3)])
def test_it_is_timms(shape, mode, as_random, monkeypatch):
    torch = pytest.importorskip("torch")
    timm = pytest.importorskip("timm.data.random_erasing")
    images, indices = pictures(120, *shape), np.arange(120)
    theirs = timm.RandomErasing(0.6, mode=mode, device="cpu")
    expected = torch.tensor(images)
    for image, rng in zip(expected, sample_rngs(4, 2, indices.tolist(), 1, ERASING), strict=True):
        monkeypatch.setattr(timm, "random", as_random(rng))
        if mode == "pixel":

            def noise(per_pixel, rand_color, size, rng=rng, **_):
                return torch.tensor(rng.standard_normal(size, np.float32))

            monkeypatch.setattr(timm, "_get_pixels", noise)
        theirs(image)
    np.testing.assert_array_equal(RandomErasing(0.6, mode).apply(images, 4, 2, indices, 1), expected.numpy())
