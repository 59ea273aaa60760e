"""Random erasing: a box of each normalised image becomes its mean colour, or noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike

from numpy_vit.data.randomness import ERASING, sample_rngs
from numpy_vit.data.resized_crop import TRIES, Box
from numpy_vit.tree import Array

Mode: TypeAlias = Literal["const", "pixel"]
MODES = get_args(Mode)

AREA = (0.02, 1 / 3)  # of the image's
ASPECT = (0.3, 1 / 0.3)  # height : width, its logarithm uniform


@dataclass(frozen=True)
class RandomErasing:
    """Erases one box in each image with a probability.

    An image of 3x32x32 takes about 8 µs on average at probability 0.25, in either mode.

    Parameters
    ----------
    prob : of erasing anything in an image.
    mode : "const" erases to 0, the data's mean; "pixel" to normal noise of its own in every value.

    Raises
    ------
    ValueError : a probability outside [0, 1], or an unknown mode.

    Source: Zhong et al. 2020, Random erasing data augmentation; timm's RandomErasing, whose ranges these are.
    """

    prob: float = 0.25
    mode: Mode = "const"

    def __post_init__(self) -> None:
        if not 0 <= self.prob <= 1:
            raise ValueError(f"prob must lie in [0, 1], not {self.prob}")
        if self.mode not in MODES:
            raise ValueError(f"mode must be one of {MODES}, not {self.mode!r}")

    def apply(self, images: Array, seed: int, epoch: int, indices: ArrayLike, repeat: ArrayLike = 0) -> Array:
        """Return the images with their boxes; what happens to one depends on (seed, epoch, its index, repeat) only.

        The numbers drawn are others than `Augmentation`'s of the same sample.

        Parameters
        ----------
        images : (B, C, Y, X) of a float type, normalised; not written to.
        indices : (B,), the samples' numbers in the data set.
        repeat : the number of the copy, or (B,), one for each.

        Returns
        -------
        (B, C, Y, X) of the same dtype

        Raises
        ------
        TypeError, ValueError : bytes, other than one index and repeat an image, or a negative number.
        """
        if not np.issubdtype(images.dtype, np.floating):
            raise TypeError(f"random erasing takes normalised images of a float type, not {images.dtype}")
        samples, repeats = np.asarray(indices), np.asarray(repeat)
        if images.ndim != 4 or samples.shape != (len(images),):
            raise ValueError(f"images (B, C, Y, X) of {images.shape} need indices (B,), not {samples.shape}")
        if repeats.shape not in ((), samples.shape):
            raise ValueError(f"indices {samples.shape} need one repeat or as many, not {repeats.shape}")
        out: Array = images.copy()
        rngs = sample_rngs(seed, epoch, samples.tolist(), repeats.tolist(), ERASING)
        for image, rng in zip(out, rngs, strict=True):
            if rng.random() > self.prob:
                continue
            top, left, height, width = draw_box(images.shape[2:], rng)
            box = image[:, top : top + height, left : left + width]  # (C, y, x)
            box[...] = 0 if self.mode == "const" else rng.standard_normal(box.shape, np.float32)
        return out


def draw_box(shape: tuple[int, ...], rng: np.random.Generator) -> Box:
    """Draw the box to erase: ten tries to find one smaller than the image (Y, X), then an empty one."""
    Y, X = shape
    for _ in range(TRIES):
        area = Y * X * rng.uniform(*AREA)
        aspect = math.exp(rng.uniform(math.log(ASPECT[0]), math.log(ASPECT[1])))
        height, width = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if height < Y and width < X:
            return int(rng.integers(Y - height + 1)), int(rng.integers(X - width + 1)), height, width
    return 0, 0, 0, 0
