"""Operations on pictures, as augmentations combine them; the same pixels as timm's and torchvision's on Pillow images.

Pictures are grey (mode "L") or RGB; an operation returns a picture of the same mode and size, or the picture itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from PIL import Image, ImageEnhance, ImageFilter, ImageOps

from numpy_vit.tree import Array

Change: TypeAlias = Callable[[Image.Image], Image.Image]  # an operation with everything drawn that it needs
Fill: TypeAlias = tuple[int, ...]  # a byte a channel

BYTES = np.arange(256, dtype=np.uint8)


def auto_contrast(picture: Image.Image) -> Image.Image:
    """Stretch each channel to the whole of 0 ... 255."""
    return ImageOps.autocontrast(picture)


def equalize(picture: Image.Image) -> Image.Image:
    """Map each channel so that all values come about equally often."""
    return ImageOps.equalize(picture)


def invert(picture: Image.Image) -> Image.Image:
    """Return 255 - value."""
    return _mapped(picture, 255 - BYTES)


def posterize(picture: Image.Image, bits: int) -> Image.Image:
    """Keep the highest `bits` of each value; 0 or fewer make it black, 8 or more leave it.

    Pillow's own refuses 0 bits since version 13, and timm's with it.
    """
    if bits >= 8:
        return picture
    return _mapped(picture, BYTES & (0xFF00 >> max(0, bits) & 0xFF))


def solarize(picture: Image.Image, threshold: int = 128) -> Image.Image:
    """Invert the values from `threshold` on."""
    return _mapped(picture, np.where(threshold > BYTES, BYTES, 255 - BYTES))


def solarize_add(picture: Image.Image, added: int) -> Image.Image:
    """Add 0 ... 128 to the values below 128."""
    return _mapped(picture, np.where(BYTES < 128, BYTES + np.uint8(added), BYTES))


def saturation(picture: Image.Image, factor: float) -> Image.Image:
    """Blend with the grey picture: 0 gives the grey, 1 changes nothing.  A grey picture stays as it is."""
    return ImageEnhance.Color(picture).enhance(factor)


def contrast(picture: Image.Image, factor: float) -> Image.Image:
    """Blend with the mean grey: 0 gives the grey, 1 changes nothing."""
    return ImageEnhance.Contrast(picture).enhance(factor)


def brightness(picture: Image.Image, factor: float) -> Image.Image:
    """Blend with black: 0 gives black, 1 changes nothing."""
    return ImageEnhance.Brightness(picture).enhance(factor)


def sharpness(picture: Image.Image, factor: float) -> Image.Image:
    """Blend with a smoothed picture: 0 gives that, 1 changes nothing, 2 sharpens."""
    return ImageEnhance.Sharpness(picture).enhance(factor)


def hue(picture: Image.Image, turn: float) -> Image.Image:
    """Turn the hue by a share of the circle in [-0.5, 0.5].  A grey picture stays as it is.

    The turn is cut to whole steps of 1/255 towards zero, as in torchvision.
    """
    if picture.mode == "L":
        return picture
    turned, saturated, value = picture.convert("HSV").split()
    turned = _mapped(turned, np.roll(BYTES, -int(turn * 255)))
    return Image.merge("HSV", (turned, saturated, value)).convert(picture.mode)


def blur(picture: Image.Image, radius: float) -> Image.Image:
    """Blur with a Gaussian of that deviation in pixels (Pillow's, three box filters)."""
    return picture.filter(ImageFilter.GaussianBlur(radius))


def rotate(picture: Image.Image, degrees: float, resample: Image.Resampling, fill: Fill) -> Image.Image:
    """Turn anticlockwise about the centre; `fill` comes in at the corners."""
    return picture.rotate(degrees, resample, fillcolor=fill)


def shear_x(picture: Image.Image, factor: float, resample: Image.Resampling, fill: Fill) -> Image.Image:
    """Take pixel (y, x) from (y, x + factor·y)."""
    return _moved(picture, (1, factor, 0, 0, 1, 0), resample, fill)


def shear_y(picture: Image.Image, factor: float, resample: Image.Resampling, fill: Fill) -> Image.Image:
    """Take pixel (y, x) from (y + factor·x, x)."""
    return _moved(picture, (1, 0, 0, factor, 1, 0), resample, fill)


def translate_x(picture: Image.Image, share: float, resample: Image.Resampling, fill: Fill) -> Image.Image:
    """Take pixel (y, x) from (y, x + share of the width)."""
    return _moved(picture, (1, 0, share * picture.width, 0, 1, 0), resample, fill)


def translate_y(picture: Image.Image, share: float, resample: Image.Resampling, fill: Fill) -> Image.Image:
    """Take pixel (y, x) from (y + share of the height, x)."""
    return _moved(picture, (1, 0, 0, 0, 1, share * picture.height), resample, fill)


def _moved(picture: Image.Image, matrix: tuple[float, ...], resample: Image.Resampling, fill: Fill) -> Image.Image:
    return picture.transform(picture.size, Image.Transform.AFFINE, matrix, resample, fillcolor=fill)


def _mapped(picture: Image.Image, table: Array) -> Image.Image:
    # A third of the time of Pillow's `point`, which rounds its table value by value in Python.
    return Image.fromarray(table[np.asarray(picture)])
