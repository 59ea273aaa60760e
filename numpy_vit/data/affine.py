"""Small random rotations, scalings, shears and shifts of whole batches."""

from __future__ import annotations

import math

import numpy as np

from numpy_vit.tree import Array

# The ranges at strength 1, within what a hand's writing varies.
ROTATION = math.radians(15)
SCALE = 0.15
SHEAR = 0.2
SHIFT = 1 / 8  # of the image's side


def draw_matrix(strength: float, shape: tuple[int, int], rng: np.random.Generator) -> Array:
    """Draw the map from an output pixel to where its value comes from, both as (row, column) from the centre.

    Parameters
    ----------
    strength : a factor of all ranges; 0 gives the identity
    shape : (Y, X), which the shift is relative to

    Returns
    -------
    (2, 3) float64: a linear map, and a shift in pixels
    """
    turn, size, slant, down, right = rng.uniform(-strength, strength, 5).tolist()
    cos, sin, factor = math.cos(ROTATION * turn), math.sin(ROTATION * turn), 1 + SCALE * size
    shear = SHEAR * slant
    return np.array(
        [
            [factor * (cos - sin * shear), -factor * sin, SHIFT * shape[0] * down],
            [factor * (sin + cos * shear), factor * cos, SHIFT * shape[1] * right],
        ]
    )


def warp(images: Array, matrices: Array) -> Array:
    """Return images whose pixels are interpolated bilinearly at matrix · (row, column, 1); zero comes from outside.

    Parameters
    ----------
    images : (B, C, Y, X) uint8
    matrices : (B, 2, 3), as of `draw_matrix`

    Returns
    -------
    (B, C, Y, X) uint8
    """
    B, _, Y, X = images.shape
    centre = np.array([(Y - 1) / 2, (X - 1) / 2])
    places = np.stack([*np.mgrid[:Y, :X].reshape(2, -1) - centre[:, None], np.ones(Y * X)])  # (3, Y·X)
    sources = (matrices @ places + centre[:, None] + 1).astype(np.float32)  # (B, 2, Y·X) in the padded image
    rows, columns = np.clip(sources[:, 0], 0, Y + 0.999), np.clip(sources[:, 1], 0, X + 0.999)
    top, left = rows.astype(np.intp), columns.astype(np.intp)
    lower, right = (rows - top)[:, None], (columns - left)[:, None]  # the weights of the lower row, the right column
    flat = np.pad(images, [(0, 0), (0, 0), (1, 1), (1, 1)]).reshape(B, -1, (Y + 2) * (X + 2))
    corner = (top * (X + 2) + left)[:, None]  # (B, 1, Y·X)

    def at(offset: int) -> Array:
        return np.take_along_axis(flat, corner + offset, axis=2).astype(np.float32)

    upper_row = at(0) * (1 - right) + at(1) * right
    lower_row = at(X + 2) * (1 - right) + at(X + 3) * right
    blended = np.rint(upper_row * (1 - lower) + lower_row * lower)
    warped: Array = blended.astype(np.uint8).reshape(images.shape)
    return warped


def random_affine(image: Array, strength: float, rng: np.random.Generator) -> Array:
    """Return an image (C, Y, X) uint8 rotated, scaled, sheared and shifted at random."""
    height, width = image.shape[1:]
    moved: Array = warp(image[None], draw_matrix(strength, (height, width), rng)[None])[0]
    return moved
