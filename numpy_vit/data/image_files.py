"""Image files to pictures of 8 bits a channel."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from numpy_vit.errors import DataError

MODES = {1: "L", 3: "RGB"}  # channels: Pillow's name for them
# What a file of a data set may hold, whatever its name says.  Not all that Pillow knows: for EPS it starts a program.
PHOTOGRAPHS = ("JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF")
_ORIENTATION = 0x0112  # the EXIF tag; from 5 on, rows become columns


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
    mode = _mode(channels)
    with _opened(path) as opened:
        opened.load()
        return _convert(opened, mode)


def read_turned(path: str | os.PathLike[str], channels: int = 3) -> Image.Image:
    """Read an image file by `read_image`'s rules, but turned upright as its EXIF orientation says.

    For models that were trained on photographs that `read_upright` read.

    Raises
    ------
    DataError, ValueError : as for `read_image`.
    """
    mode = _mode(channels)
    with _opened(path) as opened:
        opened.load()
        _turn(opened)
        return _convert(opened, mode)


def read_upright(path: str | os.PathLike[str]) -> Image.Image:
    """Read a photograph as RGB by `read_image`'s rules, but turned upright as its EXIF orientation says.

    For pictures of one's own: cameras and telephones save what their sensor saw and note how they were held.  An
    orientation that cannot be read turns nothing.

    Raises
    ------
    DataError : as for `read_image`; also for a format that is not in PHOTOGRAPHS, and, before anything is decoded,
        for more pixels than PIL.Image.MAX_IMAGE_PIXELS, which a file of a few bytes may announce.
    """
    with _opened(path, PHOTOGRAPHS) as opened:
        _refuse_bombs(opened)
        opened.load()
        _turn(opened)
        return _convert(opened, "RGB")


def upright_size(path: str | os.PathLike[str]) -> tuple[int, int]:
    """Return the (Y, X) of what `read_upright` will return, from the file's first bytes and without decoding it.

    It misses the orientation of a PNG that notes it behind the pixels.

    Raises
    ------
    DataError : as for `read_upright`, as far as the first bytes show it.
    """
    with _opened(path, PHOTOGRAPHS) as opened:
        _refuse_bombs(opened)
        _refuse_floats(opened)
        turned = False
        # A PNG without EXIF data in front is decoded by getexif; a TIFF is turned by Pillow itself.
        if opened.format != "TIFF" and (opened.format != "PNG" or "exif" in opened.info):
            with contextlib.suppress(Exception):
                turned = opened.getexif().get(_ORIENTATION, 1) in (5, 6, 7, 8)
        return (opened.width, opened.height) if turned else (opened.height, opened.width)


@contextlib.contextmanager
def _opened(path: str | os.PathLike[str], formats: tuple[str, ...] | None = None) -> Iterator[Image.Image]:
    """Open a file; whatever goes wrong in the block is a DataError that names it."""
    if not Path(path).is_file():
        raise DataError(f"{path}: {'is a folder, not an image' if Path(path).is_dir() else 'no such image file'}")
    try:
        with Image.open(path, formats=formats) as opened:
            yield opened
    except Exception as error:  # Pillow's decoders raise whatever their format's parser stumbles over
        known = "this data set takes" if formats else "Pillow knows"
        what = f"no image format that {known}" if isinstance(error, UnidentifiedImageError) else _text(error)
        raise DataError(f"{path}: cannot be read as an image: {what}") from error


def _mode(channels: int) -> str:
    if channels not in MODES:
        raise ValueError(f"image files become 1 or 3 channels, not {channels}")
    return MODES[channels]


def _turn(picture: Image.Image) -> None:
    """Turn a picture as its EXIF orientation says; one that cannot be read turns nothing."""
    with contextlib.suppress(Exception):
        ImageOps.exif_transpose(picture, in_place=True)


def _refuse_bombs(opened: Image.Image) -> None:
    pixels, most = opened.width * opened.height, Image.MAX_IMAGE_PIXELS
    if most is not None and pixels > most:
        raise ValueError(f"it announces {pixels:,} pixels, more than the {most:,} that Pillow takes for safe")


def _refuse_floats(picture: Image.Image) -> None:
    if picture.mode == "F":
        raise ValueError("its pixels are floats without an agreed white; save it with 8 bits a channel")


def _convert(picture: Image.Image, mode: str) -> Image.Image:
    _refuse_floats(picture)
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
