"""Labelled images in memory, their two parts, and the statistics that normalise them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from numpy_vit.errors import DataError
from numpy_vit.tree import Array

CHUNK = 1 << 20  # pixels counted at once: bincount turns each into 8 bytes


@dataclass(frozen=True, eq=False)
class Dataset:
    """Labelled images; checked when made, so whoever holds one need not check again.

    Parameters
    ----------
    name : what messages call it, "fashion-mnist train".
    images : (n, C, Y, X) uint8
    labels : (n,) int64, each an index into `class_names`.
    class_names : K names.

    Raises
    ------
    DataError : no images, other than one label an image, or a label that names no class.
    TypeError, ValueError : arrays of another dtype or number of dimensions.
    """

    name: str
    images: Array
    labels: Array
    class_names: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.images.dtype != np.uint8 or self.labels.dtype != np.int64:
            raise TypeError(
                f"{self.name}: images must be uint8 and labels int64, not {self.images.dtype} "
                f"and {self.labels.dtype}; convert them with astype"
            )
        if self.images.ndim != 4 or self.labels.ndim != 1:
            raise ValueError(
                f"{self.name}: images must be (n, C, Y, X) and labels (n,), not {self.images.shape} "
                f"and {self.labels.shape}; reshape them"
            )
        if self.images.size == 0:
            raise DataError(f"{self.name} is empty (images {self.images.shape}); it needs at least one image")
        if len(self.images) != len(self.labels):
            raise DataError(
                f"{self.name} has {len(self.images)} images and {len(self.labels)} labels; "
                "each image needs one label: take both from the same release"
            )
        least, greatest = int(self.labels.min()), int(self.labels.max())
        if least < 0 or greatest >= len(self.class_names):
            wrong = least if least < 0 else greatest
            raise DataError(
                f"{self.name} has label {wrong}, but its {len(self.class_names)} classes allow 0 to "
                f"{len(self.class_names) - 1}: correct the label or name the missing classes"
            )

    def __len__(self) -> int:
        return len(self.images)

    def take(self, indices: ArrayLike) -> Dataset:
        """Return the samples `indices` (m,), in that order, as a data set of their own (a copy).

        Raises
        ------
        DataError : `indices` is empty.
        IndexError : an index is not below the number of samples.
        """
        chosen = np.asarray(indices)
        if chosen.size == 0:
            raise DataError(f"nothing was taken of {self.name}'s {len(self)} samples; choose at least one")
        return Dataset(self.name, self.images[chosen], self.labels[chosen], self.class_names)


@dataclass(frozen=True, eq=False)
class Split:
    """The part to train on and the part that training never sees.

    Raises
    ------
    DataError : the two differ in image shape or class names.
    """

    train: Dataset
    test: Dataset

    def __post_init__(self) -> None:
        train, test = self.train, self.test
        if train.images.shape[1:] != test.images.shape[1:]:
            raise DataError(
                f"{train.name} has images (C, Y, X) of {train.images.shape[1:]} and {test.name} of "
                f"{test.images.shape[1:]}; both parts must have one shape: take them from the same release"
            )
        if train.class_names != test.class_names:
            raise DataError(
                f"{train.name} and {test.name} name different classes ({len(train.class_names)} and "
                f"{len(test.class_names)}): {train.class_names} and {test.class_names}; "
                "a label must mean the same in both"
            )


def statistics(images: Array) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return each channel's mean and standard deviation of `images` / 255.

    A byte has 256 values, so a channel is counted once into a histogram; its sum is then an exact integer,
    the deviations are taken from the final mean in float64, and no float copy of the images is ever made.

    Parameters
    ----------
    images : (n, C, Y, X) uint8, the training part.

    Returns
    -------
    mean, std : C floats each; std divides by the count of pixels (numpy's ddof=0) and is exactly 0.0 for a
        channel of one value.

    Raises
    ------
    TypeError, ValueError : not uint8, not four-dimensional, or empty.
    """
    if images.dtype != np.uint8:
        raise TypeError(f"images must be uint8, not {images.dtype}; take the statistics before scaling")
    if images.ndim != 4 or images.size == 0:
        raise ValueError(f"images must be (n, C, Y, X) with at least one pixel, not {images.shape}")
    values = np.arange(256) / 255
    means, deviations = [], []
    for channel in range(images.shape[1]):
        counts = _histogram(images[:, channel])
        pixels = int(counts.sum())
        mean = int(counts @ np.arange(256)) / (255 * pixels)
        means.append(mean)
        deviations.append(math.sqrt(float(counts @ (values - mean) ** 2) / pixels))
    return tuple(means), tuple(deviations)


def _histogram(planes: Array) -> Array:  # (n, Y, X) uint8 -> (256,) int64
    step = max(1, CHUNK // planes[0].size)
    counts = np.zeros(256, np.int64)
    for start in range(0, len(planes), step):
        counts += np.bincount(planes[start : start + step].ravel(), minlength=256)
    return counts
