"""What augmentation does through Pillow: each image of a batch becomes a picture, is changed, and comes back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol, TypeAlias, get_args

import numpy as np
from PIL import Image

from numpy_vit.data.operations import Change, Fill
from numpy_vit.data.rand_augment import RandAugment
from numpy_vit.data.three_augment import ThreeAugment
from numpy_vit.tree import Array

Interpolation: TypeAlias = Literal["random", "bilinear", "bicubic"]  # random: one of the two each time, as in timm
INTERPOLATIONS = get_args(Interpolation)
_BILINEAR, _BICUBIC = Image.Resampling.BILINEAR, Image.Resampling.BICUBIC
FILTERS = {"random": (_BILINEAR, _BICUBIC), "bilinear": (_BILINEAR,), "bicubic": (_BICUBIC,)}


class Policy(Protocol):
    """What draws the changes of one picture after another."""

    def draw(self, rng: np.random.Generator) -> list[Change]:
        """Draw what is done to one picture."""


def auto_augment(text: str, fill: Fill, resampling: tuple[Image.Resampling, ...]) -> Policy:
    """Return the policy of a name: "3a", or RandAugment's configuration, "rand-m9-n2-mstd0.5-inc1".

    Raises
    ------
    ValueError : another name, or a section of it that is not understood.
    """
    if text == "3a":
        return ThreeAugment()
    if text.split("-")[0] != "rand":
        raise ValueError(f"auto_augment must be '3a' or like 'rand-m9-n2-mstd0.5-inc1', not {text!r}")
    return RandAugment.parse(text, fill, resampling)


def through_pillow(images: Array, changes: Sequence[Sequence[Change]]) -> Array:
    """Change each image in turn; one without changes is copied.

    Parameters
    ----------
    images : (B, C, Y, X) uint8, C 1 (grey) or 3 (RGB)
    changes : B sequences, each in the order of application; they keep the size.

    Returns
    -------
    (B, C, Y, X) uint8

    Raises
    ------
    ValueError : other than 1 or 3 channels.
    """
    check_channels(images.shape[1])
    out = np.array(images.transpose(0, 2, 3, 1), order="C")  # (B, Y, X, C), Pillow's order
    shape = out.shape[1:3] if images.shape[1] == 1 else out.shape[1:]
    for place, todo in zip(out, changes, strict=True):
        if not todo:
            continue
        picture = Image.fromarray(place.reshape(shape))
        for change in todo:
            picture = change(picture)
        place[...] = np.asarray(picture).reshape(place.shape)
    return np.ascontiguousarray(out.transpose(0, 3, 1, 2))


def check_channels(channels: int) -> None:
    """Refuse images that Pillow cannot take.

    Raises
    ------
    ValueError : other than 1 or 3 channels.
    """
    if channels not in (1, 3):
        raise ValueError(
            f"crop_scale, auto_augment and color_jitter take images of 1 or 3 channels, not {channels}; leave them out"
        )
