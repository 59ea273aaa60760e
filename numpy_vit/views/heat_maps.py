"""A map over an image's patches or pixels as a picture, alone or laid over the image."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PIL import Image

from numpy_vit.tree import Array
from numpy_vit.views.colour_maps import diverging, sequential
from numpy_vit.views.plot import INK, Canvas

_SHARE = 0.6  # of the colour in an overlay; the rest is the image in grey


def shown(image: Array, mean: Sequence[float], std: Sequence[float]) -> Array:
    """Return a model's input (C, Y, X) as the picture (Y, X, 3) of bytes that it was before it was normalised."""
    values = image.transpose(1, 2, 0).astype(np.float64) * np.asarray(std) + np.asarray(mean)
    values = np.nan_to_num(np.clip(255 * values, 0, 255))  # a model that diverged predicts NaN: black
    pixels = values.round().astype(np.uint8)
    return np.repeat(pixels, 3, axis=-1) if pixels.shape[-1] == 1 else pixels


def raw(heat: Array, size: tuple[int, int]) -> Array:
    """Return a map (gy, gx), none of it negative, as a picture (Y, X, 3): 0 is dark, its largest value yellow."""
    return enlarged(sequential(_of_largest(heat)), size)


def signed(heat: Array, size: tuple[int, int]) -> Array:
    """Return a map (gy, gx) of both signs as a picture (Y, X, 3): blue below 0, vermilion above.

    The full colours are at the 99th percentile of the magnitudes, so that a few pixels do not hide the rest.
    """
    most = float(np.percentile(np.abs(heat), 99)) or float(np.abs(heat).max()) or 1.0
    return enlarged(diverging(heat / most), size)


def overlay(heat: Array, image: Array) -> Array:
    """Return a map (gy, gx) laid over a picture (Y, X, 3), of which the outlines remain, in grey."""
    grey = np.asarray(Image.fromarray(image).convert("L"))[..., np.newaxis]  # (Y, X, 1)
    mixed: Array = ((1 - _SHARE) * grey + _SHARE * raw(heat, image.shape[:2])).round().astype(np.uint8)
    return mixed


def enlarged(colours: Array, size: tuple[int, int]) -> Array:
    """Return colours (gy, gx, 3) as a picture of (Y, X): each patch stays a rectangle of one colour."""
    picture = Image.fromarray(colours).resize(size[::-1], Image.Resampling.NEAREST)
    return np.asarray(picture)


def colour_bar(canvas: Canvas, left: float, top: float, width: float, low: str, high: str, sign: bool = False) -> None:
    """Draw the scale of `raw`, or of `signed`, between two words."""
    values = np.linspace(-1, 1, 64) if sign else np.linspace(0, 1, 64)
    colours = diverging(values) if sign else sequential(values)
    step = width / len(values)
    for i, colour in enumerate(colours.tolist()):
        x = left + (i + 0.5) * step
        canvas.line([(x, top - 5), (x, top + 5)], "#{:02x}{:02x}{:02x}".format(*colour), step + 0.5)
    canvas.text(left - 6, top, low, 12, INK, align=1.0)
    canvas.text(left + width + 6, top, high, 12, INK)


def _of_largest(heat: Array) -> Array:
    most = float(heat.max())
    scaled: Array = heat / most if most > 0 else np.zeros_like(heat)
    return scaled
