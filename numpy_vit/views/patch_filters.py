"""What a patch projection looks for: the principal components of its filters, as small pictures."""

from __future__ import annotations

import numpy as np
from PIL import Image

from numpy_vit.tree import Array
from numpy_vit.views.tiles import Sheet, drawn_size

_SIDE, _COLUMNS = 72, 7


def components(weight: Array, count: int) -> tuple[Array, Array]:
    """Return the first principal components of the filters, and each one's share of their variance.

    The D filters are points in the space of patches; the components are the directions in which they spread most,
    of length 1.  Each is turned so that its largest entry is positive: a component has no sign of its own.

    Parameters
    ----------
    weight : (D, C, py, px)
    count : how many components; fewer where there are fewer

    Returns
    -------
    components : (count, C, py, px)
    shares : (count,), of a sum of 1 over all components

    Source: Dosovitskiy et al. 2021, figure 7 (left).
    """
    points = weight.reshape(len(weight), -1).astype(np.float64)
    _, values, directions = np.linalg.svd(points - points.mean(axis=0), full_matrices=False)
    variance = values**2
    first = directions[:count]
    largest = np.take_along_axis(first, np.abs(first).argmax(axis=1)[:, np.newaxis], axis=1)
    first = first * np.where(largest < 0, -1, 1)
    total = variance.sum() or 1.0
    return first.reshape(-1, *weight.shape[1:]), variance[:count] / total


def colours(component: Array) -> Array:
    """Return a component (C, py, px) as a picture (py, px, 3): grey is 0, its largest magnitude is full colour.

    Of one channel: grey; of three: red, green and blue; of others: the first three, or the first alone.
    """
    scaled = component / (np.abs(component).max() or 1.0)
    pixels = np.rint(127.5 + 127.5 * scaled).astype(np.uint8)
    shown = pixels[:3] if len(pixels) >= 3 else np.repeat(pixels[:1], 3, axis=0)
    made: Array = shown.transpose(1, 2, 0)
    return made


def picture(components: Array, shares: Array, title: str) -> Image.Image:
    """Draw the components, the most important first, seven a row, with a line on what they explain."""
    count = len(components)
    columns = min(_COLUMNS, count)
    tiles = [colours(component) for component in components]
    grid = [tiles[start : start + columns] for start in range(0, count, columns)]
    foot = [f"{count} components, {float(shares.sum()):.0%} of the filters' variance, the most important first"]
    names = [f"{start + 1} to {min(start + columns, count)}" for start in range(0, count, columns)]
    sheet = Sheet(drawn_size(tiles[0].shape[:2], _SIDE), [""] * columns, names, title, foot)
    return sheet.finish(grid)
