"""Many small images on one sheet, each with a few words below it."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence

import numpy as np
from PIL import Image

from numpy_vit.data.image_files import MODES
from numpy_vit.files import replacing
from numpy_vit.tree import Array
from numpy_vit.views.plot import Canvas, fit
from numpy_vit.views.tiles import drawn_size, resized

SIDE = 96  # pixels that the longer side of an image is drawn with, or the whole multiple of its own below that
_GAP, _LINE, _MARGIN, _TITLE = 10, 18, 16, 34


def draw(images: Array, words: Sequence[str], path: str | os.PathLike[str], columns: int = 8, title: str = "") -> None:
    """Write a sheet as a PNG file, whole or not at all; the parameters are those of `picture`, and the file."""
    sheet = picture(images, words, columns, title)
    with replacing(path) as file:
        sheet.save(file, format="PNG", optimize=True)


def picture(images: Array, words: Sequence[str], columns: int = 8, title: str = "") -> Image.Image:
    """Draw a sheet of images, row by row.

    Parameters
    ----------
    images : (n, C, Y, X) uint8, of 1 or 3 channels; small ones are shown in whole multiples, each pixel a square.
    words : n, what stands below each; cut where it is too long, and empty for nothing.
    columns : images in a row.
    title : stands above.

    Returns
    -------
    sheet : RGB

    Raises
    ------
    ValueError : no images, other than one text an image, other channels, or no columns.
    """
    if images.ndim != 4 or images.size == 0 or images.shape[1] not in MODES:
        raise ValueError(f"a sheet shows images (n, C, Y, X) of 1 or 3 channels, not {images.shape}")
    if len(words) != len(images) or columns < 1:
        raise ValueError(f"{len(images)} images need as many words and at least 1 column, not {len(words)}, {columns}")
    height, width = drawn_size(images.shape[2:], SIDE)
    columns = min(columns, len(images))
    across, down = max(width, SIDE) + _GAP, height + _LINE + _GAP
    top = _MARGIN + (_TITLE if title else 0)
    rows = math.ceil(len(images) / columns)
    canvas = Canvas(2 * _MARGIN + columns * across - _GAP, top + rows * down - _GAP + _MARGIN)
    corners = []
    for i, text in enumerate(words):
        left, upper = _MARGIN + i % columns * across, top + i // columns * down
        corners.append((left + (across - _GAP - width) // 2, upper))
        canvas.text(left + (across - _GAP) / 2, upper + height + _LINE / 2, fit(text, across - _GAP, 12), align=0.5)
    if title:
        canvas.text(_MARGIN, _MARGIN + 10, fit(title, columns * across - _GAP, 15), 15)
    sheet = canvas.finish()
    for image, corner in zip(images, corners, strict=True):
        sheet.paste(resized(_colours(image), height, width), corner)
    return sheet


def _colours(image: Array) -> Array:
    """An image (C, Y, X), grey or in colours, as (Y, X, 3)."""
    made: Array = np.repeat(image, 3 // len(image), axis=0).transpose(1, 2, 0)
    return made
