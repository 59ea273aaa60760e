"""Generated shapes: a function of (seed, index), and nothing but the outline tells the class."""

from __future__ import annotations

import colorsys
import math

import numpy as np
import pytest

from numpy_vit.data import shapes
from numpy_vit.data.shapes import CLASS_NAMES, TEST, load_shapes, make, masks
from numpy_vit.errors import DataError

SIZE = 24
FEW = load_shapes(SIZE, 1600, 8)
# The share of its circle that each outline fills, by elementary geometry; d is the distance of the crescent's circles.
STAR = 10 * 0.5 * 1 * 0.4 * math.sin(math.pi / 5)
TRIANGLE = 3 * math.sqrt(3) / 4
AREAS = {
    "circle": math.pi,
    "ring": math.pi * (1 - 0.55**2),
    "square": 2.0,
    "star": STAR,
    "triangle": TRIANGLE,
    "arrow": 0.8 + 0.6 * 0.95,
}


def test_an_image_is_a_function_of_seed_index_and_size() -> None:
    image, label, mask = make(13, SIZE)
    again, _, _ = make(13, (SIZE, SIZE), 0)
    np.testing.assert_array_equal(image, again)
    np.testing.assert_array_equal(image, FEW.train.images[13])
    assert label == FEW.train.labels[13] == 13 % 8
    assert image.shape == (3, SIZE, SIZE) and image.dtype == np.uint8
    assert mask.shape == (SIZE, SIZE) and mask.dtype == bool
    assert (make(13, SIZE, 1)[0] != image).any()
    assert (make(21, SIZE)[0] != image).any()


def test_the_test_part_is_the_same_whatever_is_trained_on() -> None:
    other = load_shapes(SIZE, 10, 8)
    np.testing.assert_array_equal(other.test.images, FEW.test.images)
    np.testing.assert_array_equal(FEW.test.images[3], make(TEST + 3, SIZE)[0])
    assert not any((FEW.test.images[0] == image).all() for image in FEW.train.images)


def test_the_same_picture_at_any_size() -> None:
    for index in range(8):
        large, small = make(index, 128)[2], make(index, 32)[2]
        shrunk = large.reshape(32, 4, 32, 4).mean(axis=(1, 3)) >= 0.5
        assert (shrunk != small).sum() <= 0.15 * small.sum() + 3
    assert make(0, (20, 50))[0].shape == (3, 20, 50)


@pytest.mark.parametrize("name", AREAS)
def test_the_mask_has_the_area_of_its_outline(name: str) -> None:
    """Across a hundred images: mean of r^2 for r uniform in 0.15 ... 0.3 of the side, times the unit outline's area."""
    label = CLASS_NAMES.index(name)
    found = np.mean([make(label + 8 * i, 96)[2].mean() for i in range(100)])
    expected = AREAS[name] * (0.3**3 - 0.15**3) / 3 / 0.15
    assert found == pytest.approx(expected, rel=0.15)  # the mean of 100 draws: 4% is one standard deviation


def grown(mask: np.ndarray, steps: int) -> np.ndarray:
    for _ in range(steps):
        mask = mask | np.roll(mask, 1, 0) | np.roll(mask, -1, 0)
        mask = mask | np.roll(mask, 1, 1) | np.roll(mask, -1, 1)
    return mask


def test_shape_and_background_have_hues_of_their_own() -> None:
    for index in range(60):
        image, _, mask = make(index, 64)
        inner, outer = ~grown(~mask, 1), ~grown(mask, 6)  # without the mixed pixels of edges and tips
        shape, background = (np.unique(image[:, part].T, axis=0) / 255 for part in (inner, outer))
        assert len(shape) == 1, "the shape has one colour"
        own = colorsys.rgb_to_hsv(*shape[0])[0]
        hues = np.array([colorsys.rgb_to_hsv(*colour)[0] for colour in background])
        distance = np.abs((hues - own + 0.5) % 1 - 0.5)
        assert distance.min() > 0.14, index  # 60 degrees are 0.167; bytes are rounded


def test_neither_colour_nor_place_tells_the_class() -> None:
    images, labels = FEW.train.images, FEW.train.labels
    corners = images[:, :, [0, 0, -1, -1], [0, -1, 0, -1]]
    weights = np.stack([make(i, SIZE)[2] for i in range(800)])
    centres = np.stack([np.argwhere(mask).mean(axis=0) for mask in weights])
    for values, of in (
        (images.mean(axis=(2, 3)), labels),  # mean colour
        (corners.mean(axis=2), labels),  # background
        (centres, labels[:800]),
    ):
        for column in values.T:
            assert f_statistic(column, of) < 3.5  # F(7, 800 or more): 1 in the mean, above 3.5 once in a thousand
    reddish = images.mean(axis=(2, 3))[:, 0] + 25 * (labels == 2)  # the test sees a class with a colour of its own
    assert f_statistic(reddish, labels) > 3.5


def f_statistic(column: np.ndarray, labels: np.ndarray) -> float:
    """Variance between the classes' means over that within the classes."""
    classes = [column[labels == k] for k in range(8)]
    between = sum(len(one) * (one.mean() - column.mean()) ** 2 for one in classes) / 7
    return between / (sum(len(one) * one.var() for one in classes) / (len(column) - 8))


def test_masks_and_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    np.testing.assert_array_equal(masks([TEST + 1, 5], SIZE), [make(TEST + 1, SIZE)[2], make(5, SIZE)[2]])
    calls: list[tuple[int, int]] = []
    monkeypatch.setattr(shapes, "_REPORT", 4)
    load_shapes(8, 9, 2, on_progress=lambda done, total: calls.append((done, total)))
    assert calls == [(4, 11), (8, 11), (11, 11)]


def test_what_cannot_be_drawn() -> None:
    with pytest.raises(ValueError, match="at least 8 pixels"):
        make(0, (8, 7))
    with pytest.raises(ValueError, match="sample must be in 0"):
        make(-1, 8)
    with pytest.raises(DataError, match="8 pixels a side at least"):
        load_shapes(7)
    with pytest.raises(DataError, match="0 and 1000 images"):
        load_shapes(32, 0)
    with pytest.raises(DataError, match="101,000 shapes of 224x224 take more than 1 GB"):
        load_shapes(224, 100_000)
