"""Labelled images that stay in their files: decoded when a batch takes them, never all at once."""

from __future__ import annotations

import functools
import os
import threading
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike
from PIL import Image

from numpy_vit.data.dataset import Dataset
from numpy_vit.data.eval_transform import EvalTransform
from numpy_vit.data.image_files import read_upright
from numpy_vit.errors import DataError
from numpy_vit.tree import Array

GREY = 128  # what a file that turns out broken in the middle of a run looks like
THREADS = min(4, os.cpu_count() or 1)  # Pillow decodes and resizes outside Python's lock; the rest gains nothing
_TASK = 16  # images that a thread takes at once: small ones are decoded in less time than threads need to change
_PIECE = 1024  # images between two reports of progress

OnProgress = Callable[[int, int], None]


def silent(done: int, total: int) -> None:
    """Report no progress."""


@dataclass(frozen=True, eq=False)
class StreamedDataset:
    """Image files and their labels; `take` decodes those that it is asked for.

    Each image becomes RGB, is turned upright, resized until it covers `size` (bicubic, antialiased) and cropped in
    the centre.  A file that cannot be read any more becomes a grey image and is named in `skipped` once: a run of
    hours does not die of one bad file.

    Parameters
    ----------
    name : what messages call it.
    root : the folder that the paths begin at.
    paths : n relative paths.
    bytes_of : (n,) the files' sizes in bytes, for the fingerprint.
    labels : (n,) int64, each an index into `class_names`.
    class_names : K names.
    size : (Y, X) of the images.
    left_out : files that were found broken before, each "relative/path: reason".
    resize : False where each file has this size already; another size then is a fault of the file.
    threads : that decode; the images do not depend on it.
    """

    name: str
    root: Path
    paths: tuple[str, ...]
    bytes_of: Array
    labels: Array
    class_names: tuple[str, ...]
    size: tuple[int, int]
    left_out: tuple[str, ...] = ()
    resize: bool = True
    threads: int = THREADS
    _broken: dict[str, str] = field(default_factory=dict, init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def __post_init__(self) -> None:
        if not len(self.paths) == len(self.bytes_of) == len(self.labels):
            raise ValueError(
                f"{self.name}: {len(self.paths)} paths need as many sizes and labels, not {len(self.bytes_of)} and "
                f"{len(self.labels)}"
            )
        if not self.paths:
            raise DataError(f"{self.name} is empty; it needs at least one image")

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(3, Y, X)."""
        return (3, *self.size)

    @property
    def skipped(self) -> tuple[str, ...]:
        """What could not be read so far, each "relative/path: reason"."""
        with self._lock:
            return self.left_out + tuple(self._broken[path] for path in sorted(self._broken))

    def take(self, indices: ArrayLike) -> Dataset:
        """Decode the samples `indices` (m,), in that order, into a data set in memory.

        Raises
        ------
        DataError : `indices` is empty.
        IndexError : an index is not below the number of samples.
        """
        chosen = self._chosen(indices)
        images = np.empty((len(chosen), *self.shape), np.uint8)
        self._decode(chosen, images)
        return Dataset(self.name, images, self.labels[chosen], self.class_names, self.skipped)

    def subset(self, indices: ArrayLike) -> StreamedDataset:
        """Return the files `indices` (m,), in that order; nothing is decoded."""
        chosen = self._chosen(indices)
        return replace(
            self,
            paths=tuple(self.paths[i] for i in chosen),
            bytes_of=self.bytes_of[chosen],
            labels=self.labels[chosen],
            left_out=self.skipped,
        )

    def fingerprint(self, crc: int = 0) -> int:
        """Continue a CRC-32 with the files' names and sizes in bytes, the labels and the images' shape.

        Nothing is decoded, and copying the files elsewhere changes nothing; neither does editing one in place that
        keeps its length.
        """
        about = [f"{path}\0{count}" for path, count in zip(self.paths, self.bytes_of.tolist(), strict=True)]
        crc = zlib.crc32("\n".join([str(self.shape), *about]).encode("utf-8", "surrogateescape"), crc)
        return zlib.crc32(np.ascontiguousarray(self.labels).data, crc)

    def decoded(self, on_progress: OnProgress = silent) -> Dataset:
        """Decode all of it into memory, without the files that are broken.

        Raises
        ------
        DataError : every file is broken.
        """
        images = np.empty((len(self), *self.shape), np.uint8)
        for start in range(0, len(self), _PIECE):
            rows = np.arange(start, min(start + _PIECE, len(self)))
            self._decode(rows, images[rows[0] : rows[-1] + 1])
            on_progress(int(rows[-1]) + 1, len(self))
        kept = [row for row, path in enumerate(self.paths) if path not in self._broken]
        if not kept:
            raise DataError(f"{self.name}: none of its {len(self):,} images can be read; the first: {self.skipped[0]}")
        if len(kept) < len(self):
            for row, old in enumerate(kept):  # in place: a copy would take the memory twice
                images[row] = images[old]
        return Dataset(self.name, images[: len(kept)], self.labels[kept], self.class_names, self.skipped)

    def _chosen(self, indices: ArrayLike) -> Array:
        asked = np.asarray(indices)
        if asked.size == 0:
            raise DataError(f"nothing was taken of {self.name}'s {len(self)} samples; choose at least one")
        chosen: Array = np.arange(len(self))[asked]  # so that every kind of index means what it means in memory
        return chosen

    def _decode(self, rows: Array, images: Array) -> None:
        """Write the images of some rows."""

        def some(start: int) -> None:
            for at in range(start, min(start + _TASK, len(rows))):
                images[at] = self._image(self.paths[rows[at]])

        starts = range(0, len(rows), _TASK)
        with ThreadPoolExecutor(self.threads) as pool:
            list(pool.map(some, starts))

    def _image(self, path: str) -> Array:  # (3, Y, X)
        try:
            picture = read_upright(self.root / path)
            fitted = cover(picture, self.size) if self.resize else picture
            if (fitted.height, fitted.width) != self.size:
                raise DataError(f"{fitted.width}x{fitted.height} pixels now, {self.size[1]}x{self.size[0]} before")
        except DataError as error:
            with self._lock:
                self._broken.setdefault(path, reason(self.root, path, error))
            return np.full(self.shape, GREY, np.uint8)
        pixels: Array = np.asarray(fitted).transpose(2, 0, 1)
        return pixels


def cover(picture: Image.Image, size: tuple[int, int]) -> Image.Image:
    """Resize a picture until it covers `size` (Y, X), bicubic and antialiased, and crop the centre.

    Raises
    ------
    DataError : a picture so narrow that it would become enormous.
    """
    if (picture.height, picture.width) == size:
        return picture
    return _covering(size).crop(picture)


@functools.lru_cache
def _covering(size: tuple[int, int]) -> EvalTransform:
    return EvalTransform(size, size, False, "bicubic", (0.0,), (1.0,))


def reason(root: Path, path: str, error: DataError) -> str:
    """Return "relative/path: what is wrong with it" in one line."""
    text = f"{path}: {str(error).removeprefix(f'{root / path}: ')}"
    return " ".join(text.split()).encode("utf-8", "backslashreplace").decode()  # a name may be of any bytes
