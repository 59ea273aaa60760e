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

CHUNK = 1 << 14  # values mapped at once; 64 images of 3x32x32 at once take a third longer


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
    B, C, Y, X = images.shape
    centre = np.array([(Y - 1) / 2, (X - 1) / 2])[:, None]
    places = np.stack([*np.mgrid[:Y, :X].reshape(2, -1) - centre, np.ones(Y * X)])  # (3, Y·X)
    ends = np.array([Y + 0.999, X + 0.999], np.float32)[:, None]
    step = max(1, CHUNK // (C * Y * X))
    planes = np.arange(min(step, B) * C).reshape(-1, C, 1) * ((Y + 2) * (X + 2))  # where each plane begins
    warped = np.empty((B, C, Y * X), np.uint8)
    for start in range(0, B, step):
        part = slice(start, start + step)
        sources = (matrices[part] @ places + centre + 1).astype(np.float32)  # (b, 2, Y·X) in the padded image
        np.minimum(sources, ends, out=sources)  # these two take a third of np.clip's time
        np.maximum(sources, 0, out=sources)
        whole = np.floor(sources)
        weights = np.subtract(sources, whole, dtype=np.float64)  # all that follows is blended in float64
        whole = whole.astype(np.intp)
        lower, right = weights[:, :1], weights[:, 1:]  # (b, 1, Y·X), of the lower row and of the right column
        padded = np.zeros((len(sources), C, Y + 2, X + 2))
        padded[:, :, 1:-1, 1:-1] = images[part]
        corners = planes[: len(sources)] + (whole[:, 0] * (X + 2) + whole[:, 1])[:, None]  # (b, C, Y·X)
        upper_row = _between(padded.ravel(), corners, right)
        lower_row = _between(padded.ravel()[X + 2 :], corners, right)
        upper_row *= 1 - lower
        lower_row *= lower
        upper_row += lower_row
        warped[part] = np.rint(upper_row, out=upper_row)
    return warped.reshape(images.shape)


def _between(values: Array, places: Array, weight: Array) -> Array:
    """Return the values at `places` and their right neighbours', the latter with `weight` in [0, 1)."""
    # No place is out of range; "clip" does not look for one first.
    blended: Array = values.take(places, mode="clip")
    blended *= 1 - weight
    neighbours = values[1:].take(places, mode="clip")
    neighbours *= weight
    blended += neighbours
    return blended


def random_affine(image: Array, strength: float, rng: np.random.Generator) -> Array:
    """Return an image (C, Y, X) uint8 rotated, scaled, sheared and shifted at random."""
    height, width = image.shape[1:]
    moved: Array = warp(image[None], draw_matrix(strength, (height, width), rng)[None])[0]
    return moved
