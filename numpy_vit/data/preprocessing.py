"""What stands between a data set's bytes and a model, kept with the model so that it never changes."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from numpy_vit.data.dataset import Dataset, ImageSet, histograms, pieces, statistics_of
from numpy_vit.data.transforms import normalise
from numpy_vit.errors import DataError
from numpy_vit.tree import Array

MOST_MEASURED = 10_000  # images decoded for the statistics: their mean errs by a hundredth of the images' spread
PIECE = 64  # images decoded at once


@dataclass(frozen=True)
class Preprocessing:
    """The images a model was trained on: their size, channels, and the training part's statistics.

    Parameters
    ----------
    size : (Y, X)
    channels : C
    mean, std : C floats, of bytes / 255.

    Raises
    ------
    ValueError : a size or number of channels below 1, other than C statistics, or a deviation that is not
        positive.
    """

    size: tuple[int, int]
    channels: int
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.size) != 2 or min(self.size) < 1 or self.channels < 1:
            raise ValueError(f"size (Y, X) and channels must be at least 1, not {self.size} and {self.channels}")
        if not len(self.mean) == len(self.std) == self.channels:
            raise ValueError(
                f"{self.channels} channels need as many means and deviations, not {len(self.mean)} and {len(self.std)}"
            )
        if not all(map(math.isfinite, self.mean + self.std)) or min(self.std) <= 0:
            raise ValueError(f"mean must be finite and std positive, not {self.mean} and {self.std}")

    @classmethod
    def of(cls, train: ImageSet) -> Preprocessing:
        """Measure a training part.

        Raises
        ------
        DataError : a channel has one value only, so that nothing can be divided by its deviation.
        """
        mean, std = measured(train)
        if 0.0 in std:
            channel = std.index(0.0)
            raise DataError(
                f"channel {channel} of {train.name} is {round(mean[channel] * 255)} everywhere; leave it out"
            )
        channels, height, width = train.shape
        return cls((height, width), channels, mean, std)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Preprocessing:
        """Restore what `to_json` gave, exactly.

        Raises
        ------
        DataError : a key is missing, unknown, or has a value of the wrong kind.
        """
        keys = {"size", "channels", "mean", "std"}
        if not isinstance(stored, Mapping) or set(stored) != keys:
            raise DataError(
                f"stored preprocessing needs the keys {', '.join(sorted(keys))}, not {reprlib.repr(stored)}"
            )
        integers = [stored["channels"], *_list(stored, "size")]
        if not all(type(value) is int for value in integers):
            raise DataError(f"stored size and channels must be whole numbers, not {reprlib.repr(integers)}")
        try:
            mean, std = (tuple(map(_number, _list(stored, key))) for key in ("mean", "std"))
            return cls(tuple(stored["size"]), stored["channels"], mean, std)
        except (ValueError, OverflowError) as error:  # JSON may hold integers beyond any float
            raise DataError(f"stored preprocessing is damaged: {error}") from error

    def to_json(self) -> dict[str, Any]:
        """Return a plain dict that JSON keeps exactly."""
        return {
            "size": list(self.size),
            "channels": self.channels,
            "mean": list(self.mean),
            "std": list(self.std),
        }

    def apply(self, images: Array, dtype: DTypeLike = np.float32) -> Array:
        """Normalise images (B, C, Y, X) uint8 to `dtype` with the training part's statistics.

        Raises
        ------
        DataError : the images have another size or number of channels.
        """
        self.check(images.shape)
        return normalise(images, self.mean, self.std, dtype)

    def check(self, shape: tuple[int, ...]) -> None:
        """Raise DataError unless images of `shape` (n, C, Y, X) have this size and number of channels."""
        expected = (self.channels, *self.size)
        if tuple(shape[1:]) != expected:
            raise DataError(
                f"the model was trained on images (C, Y, X) of {expected}, the data has {tuple(shape[1:])}; "
                "choose data of that shape or train a model on these"
            )


def measured(images: ImageSet) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return each channel's mean and deviation: of all images in memory, else of at most 10,000 evenly spaced ones."""
    if isinstance(images, Dataset):
        return statistics_of(histograms(images.images))
    spaced = np.arange(min(len(images), MOST_MEASURED)) * max(1.0, len(images) / MOST_MEASURED)
    parts = pieces(images.subset(spaced.astype(np.int64)), PIECE)
    return statistics_of(np.sum([histograms(part.images) for part in parts], axis=0))


def _list(stored: Mapping[str, Any], key: str) -> list[Any] | tuple[Any, ...]:
    value = stored[key]
    if not isinstance(value, (list, tuple)):
        raise DataError(f"stored {key} must be a list, not {reprlib.repr(value)}")
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise DataError(f"stored mean and std must be numbers, not {reprlib.repr(value)}")
    return float(value)
