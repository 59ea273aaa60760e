"""Mixup and CutMix: each image of a batch is mixed with another, and so are the targets."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from numpy_vit.tree import Array


class Mix(NamedTuple):
    """How a batch is mixed: one share and box for all of it."""

    kind: Literal["none", "mixup", "cutmix"]
    lam: float  # the share of an image's own pixels
    box: tuple[int, int, int, int]  # top, bottom, left, right of what CutMix takes from the other image


NONE = Mix("none", 1.0, (0, 0, 0, 0))


@dataclass(frozen=True)
class Mixing:
    """How often and how strongly batches are mixed.

    The definitions are timm's `Mixup` in its mode "batch": the partner of an image is the one at the same place from
    the batch's end, and CutMix's share is corrected to the box's after clipping.  The batch may be odd; its
    middle image is then its own partner.  An image of 3x32x32 in float32 takes about 4 µs by Mixup, 2 by CutMix.

    Parameters
    ----------
    mixup, cutmix : α of the Beta(α, α) distribution that the share is drawn from; 0 turns that kind off.
    prob : of mixing a batch at all.
    switch_prob : of CutMix rather than Mixup where both are on.

    Raises
    ------
    ValueError : an α that is negative or not finite, or a probability outside [0, 1].

    Source: Zhang et al. 2018, mixup, equation 2; Yun et al. 2019, CutMix, equations 1 and 2; timm's mixup.py.
    """

    mixup: float = 0.0
    cutmix: float = 0.0
    prob: float = 1.0
    switch_prob: float = 0.5

    def __post_init__(self) -> None:
        if not (0 <= self.mixup < math.inf and 0 <= self.cutmix < math.inf):
            raise ValueError(f"mixup and cutmix must be finite and not negative, not {self.mixup} and {self.cutmix}")
        if not (0 <= self.prob <= 1 and 0 <= self.switch_prob <= 1):
            raise ValueError(f"prob and switch_prob must lie in [0, 1], not {self.prob} and {self.switch_prob}")

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Mix:
        """Draw how a batch of images of (..., Y, X) is mixed; `rng` as of `randomness.batch_rng`."""
        if not (self.mixup or self.cutmix) or rng.random() >= self.prob:
            return NONE
        cut = self.cutmix > 0 and (self.mixup == 0 or rng.random() < self.switch_prob)
        alpha = self.cutmix if cut else self.mixup
        lam = float(rng.beta(alpha, alpha))
        if lam == 1:
            return NONE
        if not cut:
            return Mix("mixup", lam, NONE.box)
        box = draw_box(shape, lam, rng)
        top, bottom, left, right = box
        return Mix("cutmix", 1 - (bottom - top) * (right - left) / (shape[-2] * shape[-1]), box)

    @staticmethod
    def apply(images: Array, targets: Array, mix: Mix) -> tuple[Array, Array]:
        """Mix a batch with itself reversed.

        Parameters
        ----------
        images : (B, C, Y, X) of a float type, normalised; not written to.
        targets : (B, K) of a float type, as of `soft_targets`; not written to.

        Returns
        -------
        images, targets : of the same shapes and dtypes; the arguments themselves where nothing is mixed.

        Raises
        ------
        TypeError, ValueError : images or targets of no float type, or of different numbers.
        """
        if not (np.issubdtype(images.dtype, np.floating) and np.issubdtype(targets.dtype, np.floating)):
            raise TypeError(f"mixing takes images and targets of a float type, not {images.dtype} and {targets.dtype}")
        if images.ndim != 4 or targets.ndim != 2 or len(images) != len(targets):
            raise ValueError(f"images (B, C, Y, X) of {images.shape} need targets (B, K), not {targets.shape}")
        if mix.kind == "none":
            return images, targets
        if mix.kind == "mixup":
            mixed = _blend(images, mix.lam)
        else:
            top, bottom, left, right = mix.box
            mixed = images.copy()
            mixed[..., top:bottom, left:right] = images[::-1, :, top:bottom, left:right]
        return mixed, _blend(targets, mix.lam)


def draw_box(shape: tuple[int, ...], lam: float, rng: np.random.Generator) -> tuple[int, int, int, int]:
    """Draw the box of CutMix: of 1 - lam of the area, its centre anywhere, cut off where it leaves the image.

    Parameters
    ----------
    shape : (..., Y, X)

    Returns
    -------
    top, bottom, left, right : as of a slice
    """
    Y, X = shape[-2:]
    height, width = int(Y * math.sqrt(1 - lam)), int(X * math.sqrt(1 - lam))
    row, column = int(rng.integers(Y)), int(rng.integers(X))
    top, bottom = max(0, row - height // 2), min(Y, row + (height + 1) // 2)
    left, right = max(0, column - width // 2), min(X, column + (width + 1) // 2)
    return top, bottom, left, right


def soft_targets(labels: Array, classes: int, smoothing: float = 0.0, dtype: DTypeLike = np.float32) -> Array:
    """Return each label as a distribution: smoothing / K everywhere, and 1 - smoothing more at the label.

    Parameters
    ----------
    labels : (B,) of an integer type
    smoothing : ε in [0, 1]

    Returns
    -------
    (B, K) `dtype`, each row's sum is 1.

    Raises
    ------
    ValueError : labels that are no classes, or a smoothing outside [0, 1].

    Source: Szegedy et al. 2016, section 7.
    """
    if not 0 <= smoothing <= 1:
        raise ValueError(f"smoothing must lie in [0, 1], not {smoothing}")
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(f"labels must be integers (B,), not {labels.dtype} {labels.shape}")
    if len(labels) and not (labels.min() >= 0 and labels.max() < classes):
        raise ValueError(f"labels must lie in 0 .. {classes - 1}, not {labels.min()} .. {labels.max()}")
    targets = np.full((len(labels), classes), smoothing / classes, dtype)
    targets[np.arange(len(labels)), labels] = 1 - smoothing + smoothing / classes
    return targets


def _blend(values: Array, lam: float) -> Array:
    blended: Array = values * lam
    blended += values[::-1] * (1 - lam)
    return blended
