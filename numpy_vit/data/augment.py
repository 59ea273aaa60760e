"""Random changes of whole batches of images, each sample with randomness of its own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import ArrayLike

from numpy_vit.data.affine import draw_matrix, warp
from numpy_vit.data.colour_jitter import ColourJitter
from numpy_vit.data.operations import Change
from numpy_vit.data.pillow_augment import (
    FILTERS,
    INTERPOLATIONS,
    Interpolation,
    Policy,
    auto_augment,
    check_channels,
    through_pillow,
)
from numpy_vit.data.randomness import sample_rngs
from numpy_vit.data.resized_crop import ResizedCrop
from numpy_vit.data.transforms import PAD_MODES, PadMode, draw_corner, draw_flip, pad
from numpy_vit.tree import Array

CHUNK = 1 << 19  # bytes gathered at once; 60,000 padded images at once take three times as long


@dataclass(frozen=True)
class Augmentation:
    """What is done to training images, in this order: crop, flip, affine map, automatic augmentation, colour jitter.

    Parameters
    ----------
    padding : pixels on each side before the crop; 0 leaves the crop out.
    flip : whether to mirror left to right with probability 1/2.
    mode : what the padding is, "constant" (zeros) or "reflect".
    affine : strength of small rotations, scalings, shears and shifts (affine.py); 0 leaves them out.
    crop_scale : least and greatest area of a random resized crop (resized_crop.py), as shares of the image's; None
        leaves it out.  It takes the place of the crop after padding.
    crop_ratio : its least and greatest width : height.
    auto_augment : "rand-m9-n2-mstd0.5-inc1" and the like (rand_augment.py) or "3a" (three_augment.py).
    color_jitter : strength for brightness, contrast and saturation (colour_jitter.py); None leaves it out.  timm does
        so too where RandAugment is on.
    mean : bytes of the data's mean colour, one a channel or one for all: what RandAugment's operations bring in from
        outside.
    interpolation : of the resized crop and of RandAugment: "bilinear", "bicubic" or "random", one of both each time.

    Raises
    ------
    ValueError : a number out of range, two kinds of crop, or an unknown name.
    """

    padding: int = 0
    flip: bool = False
    mode: PadMode = "constant"
    affine: float = 0.0
    crop_scale: tuple[float, float] | None = None
    crop_ratio: tuple[float, float] = (3 / 4, 4 / 3)
    auto_augment: str | None = None
    color_jitter: float | None = None
    mean: tuple[int, ...] = (128,)
    interpolation: Interpolation = "random"

    def __post_init__(self) -> None:
        if self.mode not in PAD_MODES:
            raise ValueError(f"mode must be one of {PAD_MODES}, not {self.mode!r}")
        if self.padding < 0:
            raise ValueError(f"padding must not be negative, not {self.padding}; 0 leaves the crop out")
        if not 0 <= self.affine <= 3:  # at 3 the image may be upside down or a third of its size
            raise ValueError(f"affine must lie in [0, 3], not {self.affine}; 0 leaves the map out")
        if self.padding and self.crop_scale is not None:
            raise ValueError("padding and crop_scale are two kinds of crop; choose one")
        if not self.mean or not all(isinstance(value, int) and 0 <= value <= 255 for value in self.mean):
            raise ValueError(f"mean must be whole numbers in 0 .. 255, one a channel or one for all, not {self.mean}")
        if self.interpolation not in INTERPOLATIONS:
            raise ValueError(f"interpolation must be one of {INTERPOLATIONS}, not {self.interpolation!r}")
        self._resized_crop()  # these two refuse what cannot be
        self._policies(len(self.mean))

    def apply(self, images: Array, seed: int, epoch: int, indices: ArrayLike, repeat: ArrayLike = 0) -> Array:
        """Return the augmented images; what happens to one depends on (seed, epoch, its index, repeat) only.

        Equals the crop, horizontal_flip, random_affine and the policies' changes in turn with `rng =
        sample_rng(seed, epoch, index, repeat)` for every image.  What needs no Pillow is gathered for many at
        once: 60,000 images of 28x28 take about 0.5 s to crop and flip, an affine map 1.7 s.  Through Pillow a 32x32
        image takes about 70 µs by a resized crop, 105 by RandAugment, 70 by 3-Augment, 130 by colour jitter.

        Parameters
        ----------
        images : (B, C, Y, X) uint8, not written to.
        indices : (B,), the samples' numbers in the data set.
        repeat : the number of the copy where a batch repeats samples, or (B,), one for each.

        Returns
        -------
        (B, C, Y, X) uint8; `images` itself where there is nothing to do.

        Raises
        ------
        ValueError : other than one index and repeat an image, a negative number, a padding too large to mirror, or
            channels that Pillow does not take where it is needed.
        """
        samples, repeats = np.asarray(indices), np.asarray(repeat)
        if images.ndim != 4 or samples.shape != (len(images),):
            raise ValueError(f"images (B, C, Y, X) of {images.shape} need indices (B,), not {samples.shape}")
        if repeats.shape not in ((), samples.shape):
            raise ValueError(f"indices {samples.shape} need one repeat or as many, not {repeats.shape}")
        resized_crop, policies = self._resized_crop(), self._policies(images.shape[1])
        if not (self.padding or self.flip or self.affine or resized_crop or policies):
            return images
        if resized_crop or policies:
            check_channels(images.shape[1])
        corners = np.zeros((len(images), 2), np.intp)
        flips = np.zeros(len(images), bool)
        matrices = np.zeros((len(images), 2, 3))
        crops: list[list[Change]] = []
        changes: list[list[Change]] = []
        shape = images.shape[2:]
        for i, rng in enumerate(sample_rngs(seed, epoch, samples.tolist(), repeats.tolist())):
            if self.padding:
                corners[i] = draw_corner(self.padding, rng)
            if resized_crop:
                crops.append([resized_crop.draw(shape, rng)])
            if self.flip:
                flips[i] = draw_flip(rng)
            if self.affine:
                matrices[i] = draw_matrix(self.affine, shape, rng)
            if policies:
                changes.append([change for policy in policies for change in policy.draw(rng)])
        out = np.empty(images.shape, images.dtype)
        step = max(1, CHUNK // max(1, images[:1].nbytes))
        for start in range(0, len(images), step):
            part = slice(start, start + step)
            cut = through_pillow(images[part], crops[part]) if resized_crop else images[part]
            cut = self._cut(cut, corners[part], flips[part])
            cut = warp(cut, matrices[part]) if self.affine else cut
            out[part] = through_pillow(cut, changes[part]) if policies else cut
        return out

    def _cut(self, images: Array, corners: Array, flips: Array) -> Array:
        cut = images
        if self.padding:
            windows = sliding_window_view(pad(images, self.padding, self.mode), images.shape[2:], axis=(2, 3))
            cut = windows[np.arange(len(images)), :, corners[:, 0], corners[:, 1]]  # (b, C, Y, X)
        return np.where(flips[:, np.newaxis, np.newaxis, np.newaxis], cut[..., ::-1], cut)

    def _resized_crop(self) -> ResizedCrop | None:
        if self.crop_scale is None:
            return None
        return ResizedCrop(self.crop_scale, self.crop_ratio, FILTERS[self.interpolation])

    def _policies(self, channels: int) -> list[Policy]:
        """Return what is done after the affine map to images of so many channels."""
        policies: list[Policy] = []
        if self.auto_augment is not None:
            if len(self.mean) not in (1, channels):
                raise ValueError(f"mean {self.mean} must have 1 or {channels} values for images of {channels} channels")
            fill = self.mean if len(self.mean) == channels else self.mean * channels
            policies.append(auto_augment(self.auto_augment, fill, FILTERS[self.interpolation]))
        if self.color_jitter is not None:
            policies.append(ColourJitter(self.color_jitter, self.color_jitter, self.color_jitter))
        return policies
