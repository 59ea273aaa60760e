"""Affine maps against Pillow's, against shifting by hand, and against a formula."""

import numpy as np
import pytest
from PIL import Image

from numpy_vit.data.affine import ROTATION, draw_matrix, random_affine, warp
from numpy_vit.data.augment import Augmentation

IDENTITY = np.array([[1.0, 0, 0], [0, 1, 0]])


def pictures(n=3, channels=2, height=9, width=7):
    return np.random.default_rng(0).integers(0, 256, (n, channels, height, width), np.uint8)


def as_written(images, matrices):
    """All pixels of all images at once, each blended from four of the padded image."""
    Y, X = images.shape[2:]
    centre = np.array([(Y - 1) / 2, (X - 1) / 2])[:, None]
    places = np.stack([*np.mgrid[:Y, :X].reshape(2, -1) - centre, np.ones(Y * X)])
    sources = (matrices @ places + centre + 1).astype(np.float32)
    rows, columns = np.clip(sources[:, 0], 0, Y + 0.999), np.clip(sources[:, 1], 0, X + 0.999)
    top, left = rows.astype(int), columns.astype(int)
    lower, right = (rows - top)[:, None], (columns - left)[:, None]
    padded = np.pad(images, [(0, 0), (0, 0), (1, 1), (1, 1)]).astype(float)

    def at(down, across):
        return np.stack([image[:, y + down, x + across] for image, y, x in zip(padded, top, left, strict=True)])

    upper_row = at(0, 0) * (1 - right) + at(0, 1) * right
    lower_row = at(1, 0) * (1 - right) + at(1, 1) * right
    return np.rint(upper_row * (1 - lower) + lower_row * lower).astype(np.uint8).reshape(images.shape)


@pytest.mark.parametrize("shape", [(64, 1, 8, 8), (70, 3, 32, 32), (3, 2, 9, 7), (2, 1, 1, 1), (1, 1, 200, 150)])
@pytest.mark.parametrize("strength", [0.7, 3.0])
def test_pieces_and_buffers_change_no_bit(shape, strength):
    images, rng = pictures(*shape), np.random.default_rng(1)
    matrices = np.array([draw_matrix(strength, shape[2:], rng) for _ in images])
    np.testing.assert_array_equal(warp(images, matrices), as_written(images, matrices))


def test_the_identity_changes_nothing():
    images = pictures()
    np.testing.assert_array_equal(warp(images, np.tile(IDENTITY, (3, 1, 1))), images)
    np.testing.assert_array_equal(random_affine(images[0], 0.0, np.random.default_rng(0)), images[0])


def test_whole_shifts_move_pixels_and_bring_in_zeros():
    images = pictures(1)
    moved = warp(images, IDENTITY[None] + [[[0, 0, 2], [0, 0, -1]]])  # the value comes from 2 below, 1 to the left
    np.testing.assert_array_equal(moved[:, :, :-2, 1:], images[:, :, 2:, :-1])
    assert not moved[:, :, -2:].any()
    assert not moved[:, :, :, 0].any()


def test_half_a_pixel_is_the_mean_of_two():
    images = pictures(1)
    moved = warp(images, IDENTITY[None] + [[[0, 0, 0.5], [0, 0, 0]]])
    expected = (images[:, :, :-1].astype(float) + images[:, :, 1:]) / 2
    assert np.abs(moved[:, :, :-1] - expected).max() <= 0.5


@pytest.mark.parametrize("seed", range(5))
def test_equals_pillow_inside(seed):
    image = pictures(1, 1, 16, 12)[0]
    matrix = draw_matrix(1.0, (16, 12), np.random.default_rng(seed))
    (a, b, down), (c, d, right) = matrix.tolist()
    y, x = 7.5, 5.5
    # Pillow maps (column, row) of pixel centres: x' = d·x + c·y + …, with coordinates half a pixel further
    data = (d, c, right + x - d * x - c * y + 0.5 - 0.5 * (d + c), b, a, down + y - b * x - a * y + 0.5 - 0.5 * (b + a))
    theirs = Image.fromarray(image[0]).transform((12, 16), Image.Transform.AFFINE, data, Image.Resampling.BILINEAR)
    ours = warp(image[None], matrix[None])[0, 0].astype(int)
    difference = np.abs(ours - np.asarray(theirs).astype(int))[4:-4, 4:-4]  # the edges fade differently
    assert difference.max() <= 1


def test_a_quarter_turn():
    images = pictures(1, 1, 7, 7)
    quarter = np.array([[[0.0, -1, 0], [1, 0, 0]]])
    np.testing.assert_array_equal(warp(images, quarter)[0, 0], np.rot90(images[0, 0], -1))


def test_strength_bounds_the_angle():
    rng = np.random.default_rng(0)
    angles = []
    for _ in range(500):
        (_, b, _), (_, d, _) = draw_matrix(0.5, (8, 8), rng)
        angles.append(np.arctan2(-b, d))
    assert 0.95 * ROTATION / 2 < max(angles) <= ROTATION / 2
    assert -ROTATION / 2 <= min(angles) < -0.95 * ROTATION / 2


@pytest.mark.parametrize("strength", [-0.1, 3.1, float("nan")])
def test_strengths_out_of_range_are_refused(strength):
    with pytest.raises(ValueError, match=r"affine must lie in \[0, 3\]"):
        Augmentation(affine=strength)
