"""Another size for data sets that come in one of their own."""

from __future__ import annotations

import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from PIL import Image

from numpy_vit.data.dataset import MOST_IN_MEMORY, Dataset, ImageSet, Split
from numpy_vit.data.streamed import THREADS, cover
from numpy_vit.tree import Array

_TASK = 64  # images that a thread resizes at once


@dataclass(frozen=True, eq=False)
class ResizedDataset:
    """A data set whose images are resized when they are taken: until they cover `size` (Y, X), then cropped.

    The filter is Pillow's: bicubic, antialiased where the image shrinks.
    """

    original: ImageSet
    size: tuple[int, int]

    def __len__(self) -> int:
        return len(self.original)

    @property
    def name(self) -> str:
        """The original's."""
        return self.original.name

    @property
    def labels(self) -> Array:
        """The original's."""
        return self.original.labels

    @property
    def class_names(self) -> tuple[str, ...]:
        """The original's."""
        return self.original.class_names

    @property
    def skipped(self) -> tuple[str, ...]:
        """The original's."""
        return self.original.skipped

    @property
    def shape(self) -> tuple[int, int, int]:
        """(C, Y, X)."""
        return (self.original.shape[0], *self.size)

    def take(self, indices: ArrayLike) -> Dataset:
        """Return the samples `indices` (m,), in that order, resized, in memory."""
        part = self.original.take(indices)
        return Dataset(part.name, resize(part.images, self.size), part.labels, part.class_names, part.skipped)

    def subset(self, indices: ArrayLike) -> ResizedDataset:
        """Return the samples `indices` (m,), in that order; nothing is resized yet."""
        return ResizedDataset(self.original.subset(indices), self.size)

    def fingerprint(self, crc: int = 0) -> int:
        """Continue a CRC-32 with the size and the original."""
        return self.original.fingerprint(zlib.crc32(str(self.size).encode(), crc))


def resized(data: Split, size: tuple[int, int] | None, most_in_memory: int = MOST_IN_MEMORY) -> Split:
    """Return the data in another size: resized now where the result fits into memory, else whenever it is taken.

    Parameters
    ----------
    size : (Y, X); None, or the size that the images have, changes nothing.
    most_in_memory : bytes of both parts' images.
    """
    if size is None or data.train.shape[1:] == size:
        return data
    parts = [ResizedDataset(part, size) for part in (data.train, data.test)]
    if sum(len(part) * int(np.prod(part.shape)) for part in parts) > most_in_memory:
        return Split(*parts)
    return Split(*(part.take(range(len(part))) for part in parts))


def resize(images: Array, size: tuple[int, int]) -> Array:
    """Resize images (n, C, Y, X) uint8 until they cover `size` (Y, X), channel by channel, and crop the centre.

    Raises
    ------
    DataError : images so narrow that they would become enormous.
    """
    out = np.empty((*images.shape[:2], *size), np.uint8)
    planes, resized_planes = images.reshape(-1, *images.shape[2:]), out.reshape(-1, *size)

    def some(start: int) -> None:
        for i in range(start, min(start + _TASK, len(planes))):
            resized_planes[i] = np.asarray(cover(Image.fromarray(planes[i]), size))

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(some, range(0, len(planes), _TASK)))
    return out
