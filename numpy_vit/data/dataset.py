"""Labelled images, their two parts, and the statistics that normalise them."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from numpy_vit.errors import DataError
from numpy_vit.tree import Array

CHUNK = 1 << 20  # pixels counted at once: bincount turns each into 8 bytes
MOST_IN_MEMORY = 10**9  # bytes of decoded images: a laptop of 8 GB has as much again for a model's activations


class ImageSet(Protocol):
    """Labelled images, wherever their pixels are: in memory, in files, or yet to be resized.

    name : what messages call it, "fashion-mnist train".
    labels : (n,) int64, each an index into `class_names`.
    class_names : K names.
    shape : (C, Y, X) of each image.
    skipped : what could not be read, each "relative/path: reason"; it may grow while images are read.
    """

    @property
    def name(self) -> str: ...
    @property
    def labels(self) -> Array: ...
    @property
    def class_names(self) -> tuple[str, ...]: ...
    @property
    def shape(self) -> tuple[int, int, int]: ...
    @property
    def skipped(self) -> tuple[str, ...]: ...

    def __len__(self) -> int: ...

    def take(self, indices: ArrayLike) -> Dataset:
        """Return the samples `indices` (m,), in that order, in memory; DataError where there are none."""

    def subset(self, indices: ArrayLike) -> ImageSet:
        """Return the samples `indices` (m,), in that order, without reading a pixel of what is not in memory."""

    def fingerprint(self, crc: int = 0) -> int:
        """Continue a checksum with what the images and labels are, without decoding a file."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Labelled images in memory; checked when made, so whoever holds one need not check again.

    Parameters
    ----------
    name : what messages call it, "fashion-mnist train".
    images : (n, C, Y, X) uint8
    labels : (n,) int64, each an index into `class_names`.
    class_names : K names.
    skipped : the files that could not be read when it was made, each "relative/path: reason".

    Raises
    ------
    DataError : no images, other than one label an image, or a label that names no class.
    TypeError, ValueError : arrays of another dtype or number of dimensions.
    """

    name: str
    images: Array
    labels: Array
    class_names: tuple[str, ...]
    skipped: tuple[str, ...] = ()

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

    @property
    def shape(self) -> tuple[int, int, int]:
        """(C, Y, X) of each image."""
        _, channels, height, width = self.images.shape
        return channels, height, width

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
        return replace(self, images=self.images[chosen], labels=self.labels[chosen])

    def subset(self, indices: ArrayLike) -> Dataset:
        """Return what `take` returns: the pixels are in memory already."""
        return self.take(indices)

    def fingerprint(self, crc: int = 0) -> int:
        """Continue a CRC-32 with all images and labels, in their order."""
        for array in (self.images, self.labels):
            crc = zlib.crc32(np.ascontiguousarray(array).data, crc)
        return crc


@dataclass(frozen=True, eq=False)
class Split:
    """The part to train on and the part that training never sees.

    Raises
    ------
    DataError : the two differ in image shape or class names.
    """

    train: ImageSet
    test: ImageSet

    def __post_init__(self) -> None:
        train, test = self.train, self.test
        if train.shape != test.shape:
            raise DataError(
                f"{train.name} has images (C, Y, X) of {train.shape} and {test.name} of "
                f"{test.shape}; both parts must have one shape: take them from the same release"
            )
        if train.class_names != test.class_names:
            raise DataError(
                f"{train.name} and {test.name} name different classes ({len(train.class_names)} and "
                f"{len(test.class_names)}): {train.class_names} and {test.class_names}; "
                "a label must mean the same in both"
            )


def pieces(images: ImageSet, count: int) -> Iterator[Dataset]:
    """Yield a data set in memory piece by piece, in order, each of at most `count` samples.

    Raises
    ------
    ValueError : `count` is below 1.
    """
    if count < 1:
        raise ValueError(f"a piece needs at least 1 sample, not {count}")
    return (images.take(range(i, min(i + count, len(images)))) for i in range(0, len(images), count))


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
    return statistics_of(histograms(images))


def histograms(images: Array) -> Array:
    """Return how often each channel of images (n, C, Y, X) uint8 has each value, (C, 256) int64.

    Raises
    ------
    TypeError, ValueError : not uint8, not four-dimensional, or empty.
    """
    if images.dtype != np.uint8:
        raise TypeError(f"images must be uint8, not {images.dtype}; take the statistics before scaling")
    if images.ndim != 4 or images.size == 0:
        raise ValueError(f"images must be (n, C, Y, X) with at least one pixel, not {images.shape}")
    return np.stack([_histogram(images[:, channel]) for channel in range(images.shape[1])])


def statistics_of(channels: Array) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return each channel's mean and standard deviation from `histograms`, which add up over parts of a data set."""
    values = np.arange(256) / 255
    means, deviations = [], []
    for counts in channels:
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
