"""Pure functions on images: normalisation of a batch, random crop and flip of one image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import DTypeLike

from numpy_vit.tree import Array

PadMode: TypeAlias = Literal["constant", "reflect"]  # zeros, or the image mirrored without its edge
PAD_MODES = get_args(PadMode)


def normalise(images: Array, mean: Sequence[float], std: Sequence[float], dtype: DTypeLike = np.float32) -> Array:
    """Return (images / 255 - mean) / std, channel by channel, in `dtype`.

    Computed as images * scale + offset with both in `dtype`: two passes over the result and no other array of
    its size, where the formula as written makes three.

    Parameters
    ----------
    images : (B, C, Y, X) uint8
    mean, std : C floats, of bytes / 255.
    dtype : a float type.

    Returns
    -------
    (B, C, Y, X) `dtype`, C-contiguous.

    Raises
    ------
    TypeError, ValueError : images not uint8 or not 4-D, a dtype that is no float, other than C means and
        deviations, or a deviation that is not positive.
    """
    if images.dtype != np.uint8 or not np.issubdtype(np.dtype(dtype), np.floating):
        raise TypeError(f"normalise takes uint8 to a float type, not {images.dtype} to {np.dtype(dtype)}")
    if images.ndim != 4 or not images.shape[1] == len(mean) == len(std):
        raise ValueError(
            f"images (B, C, Y, X) of {images.shape} need C means and deviations, not {len(mean)}, {len(std)}"
        )
    if not all(deviation > 0 for deviation in std):
        raise ValueError(f"std must be positive, not {tuple(std)}; leave out the channels of one value")
    scale = np.array([1 / (255 * s) for s in std], dtype)[:, np.newaxis, np.newaxis]  # (C, 1, 1)
    offset = np.array([-m / s for m, s in zip(mean, std, strict=True)], dtype)[:, np.newaxis, np.newaxis]
    out = np.empty(images.shape, dtype)
    np.multiply(images, scale, out=out)
    out += offset
    return out


def random_crop(image: Array, padding: int, rng: np.random.Generator, mode: PadMode = "constant") -> Array:
    """Pad an image on all sides and cut a window of its own size out of it, anywhere with equal chance.

    Parameters
    ----------
    image : (C, Y, X)
    padding : pixels on each side; "reflect" needs fewer than Y and X.

    Returns
    -------
    (C, Y, X), of the same dtype.

    Raises
    ------
    ValueError : a negative padding, or one that the image cannot be mirrored by.
    """
    padded = pad(image, padding, mode)
    top, left = draw_corner(padding, rng)
    height, width = image.shape[-2:]
    window: Array = padded[:, top : top + height, left : left + width].copy()
    return window


def horizontal_flip(image: Array, rng: np.random.Generator) -> Array:
    """Mirror an image (C, Y, X) left to right, or copy it, with equal chance."""
    flipped: Array = (image[..., ::-1] if draw_flip(rng) else image).copy()
    return flipped


def pad(images: Array, padding: int, mode: PadMode = "constant") -> Array:
    """Pad the last two axes of (..., Y, X) by `padding` on all sides.

    Raises
    ------
    ValueError : a negative padding, one that the image cannot be mirrored by, or an unknown mode.
    """
    check_padding(images.shape, padding, mode)
    widths = [(0, 0)] * (images.ndim - 2) + [(padding, padding)] * 2
    return np.pad(images, widths, mode=mode)


def check_padding(shape: tuple[int, ...], padding: int, mode: PadMode) -> None:
    """Refuse a padding that images of `shape` (..., Y, X) cannot have.

    Raises
    ------
    ValueError : a negative padding, one that the image cannot be mirrored by, or an unknown mode.
    """
    if mode not in PAD_MODES:
        raise ValueError(f"mode must be one of {PAD_MODES}, not {mode!r}")
    if padding < 0:
        raise ValueError(f"padding must not be negative, not {padding}; 0 turns it off")
    if mode == "reflect" and padding >= min(shape[-2:]):
        raise ValueError(f"reflect needs a padding below the sides {tuple(shape[-2:])}, not {padding}; take constant")


def draw_corner(padding: int, rng: np.random.Generator) -> tuple[int, int]:
    """Draw the top and left of a crop's window in the padded image, each in 0 .. 2 * padding."""
    positions = 2 * padding + 1
    # Two scalar draws take half the time of one draw of size 2.
    return int(rng.integers(positions)), int(rng.integers(positions))


def draw_flip(rng: np.random.Generator) -> bool:
    """Draw whether to mirror."""
    return rng.random() < 0.5
