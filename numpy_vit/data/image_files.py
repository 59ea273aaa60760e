"""Image files to pictures of 8 bits a channel."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from numpy_vit.errors import DataError

MODES = {1: "L", 3: "RGB"}  # channels: Pillow's name for them


def read_image(path: str | os.PathLike[str], channels: int = 3) -> Image.Image:
    """Read an image file of any format that Pillow knows, as grey (1 channel) or RGB (3).

    The pixels stay where they lie in the file: an EXIF orientation is not applied, as in torchvision's and timm's
    training and evaluation.  Palettes are looked up, CMYK is converted, alpha is dropped and shows the colours below
    it: Pillow's `convert("RGB")`.  Only 16-bit greys differ from it: they keep their high byte, as 16-bit colours do,
    where `convert` makes everything above 255 white.

    Parameters
    ----------
    channels : 1 or 3.

    Returns
    -------
    picture : mode "L" or "RGB"

    Raises
    ------
    DataError : the file is missing, broken, no image, or holds floats; one line that names it.
    ValueError : another number of channels.
    """
    if channels not in MODES:
        raise ValueError(f"image files become 1 or 3 channels, not {channels}")
    if not Path(path).is_file():
        raise DataError(f"{path}: {'is a folder, not an image' if Path(path).is_dir() else 'no such image file'}")
    try:
        with Image.open(path) as opened:
            opened.load()
            return _convert(opened, MODES[channels])
    except Exception as error:  # Pillow's decoders raise whatever their format's parser stumbles over
        what = "no image format that Pillow knows" if isinstance(error, UnidentifiedImageError) else _text(error)
        raise DataError(f"{path}: cannot be read as an image: {what}") from error


def _convert(picture: Image.Image, mode: str) -> Image.Image:
    if picture.mode == "F":
        raise ValueError("its pixels are floats without an agreed white; save it with 8 bits a channel")
    if picture.mode == "I" or picture.mode.startswith("I;16"):
        values = np.asarray(picture).astype(np.int64)
        if values.min() < 0 or values.max() > 65535:
            raise ValueError("its pixels exceed 16 bits; save it with 8 bits a channel")
        picture = Image.fromarray((values >> 8).astype(np.uint8))
    elif picture.mode == "P" and "transparency" in picture.info:
        picture = picture.convert("RGBA")  # the same colours, and Pillow warns about the direct way
    return picture.convert(mode)


def _text(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
