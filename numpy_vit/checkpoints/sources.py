"""An open file that is read by position, every read checked against its size first, and mapped when asked."""

from __future__ import annotations

import mmap
import os
import zlib
from io import BufferedReader
from typing import Any

import numpy as np

from numpy_vit.tree import Array

_CHUNK = 1 << 20


class BrokenFileError(Exception):
    """What is wrong with a file, in words; `read_tensors` puts the file's name before it."""


class Budget:
    """What a file may still make us allocate: small files a fixed sum, large ones a multiple of their size."""

    def __init__(self, limit: int, what: str) -> None:
        self._left = limit
        self._fault = f"{what} more than {limit} bytes, which such a small file cannot need"

    def charge(self, count: int) -> None:
        """Take `count` bytes off, before they are allocated; raise BrokenFileError when there are not so many left."""
        self._left -= count
        if self._left < 0:
            raise BrokenFileError(self._fault)


class Source:
    """A file open for reading.  With `mapped`, arrays are read-only views of the file instead of copies."""

    def __init__(self, file: BufferedReader, mapped: bool) -> None:
        self.file = file
        self.mapped = mapped
        self.size = file.seek(0, os.SEEK_END)
        self._map: mmap.mmap | None = None

    def read(self, start: int, count: int) -> bytes:
        """Return `count` bytes from `start` on; raise BrokenFileError where the file has fewer."""
        self._check(start, count)
        self.file.seek(start)
        data = self.file.read(count)
        if len(data) != count:
            raise BrokenFileError("it became shorter while it was read")
        return data

    def array(self, start: int, dtype: np.dtype[Any], count: int) -> Array:
        """Return `count` items from byte `start` on: a map where asked for, or else an array of its own."""
        if self.mapped and count:
            return self.map(start, dtype, count)
        self._check(start, count * dtype.itemsize)
        array = np.empty(count, dtype)
        self.file.seek(start)
        if self.file.readinto(array.view(np.uint8).data) != array.nbytes:
            raise BrokenFileError("it became shorter while it was read")
        return array

    def map(self, start: int, dtype: np.dtype[Any], count: int) -> Array:
        """Return a read-only view of `count` > 0 items of the file; only what is looked at is ever read."""
        self._check(start, count * dtype.itemsize)
        if self._map is None:  # one map for all: the number of maps is limited, and each array keeps it alive
            self._map = mmap.mmap(self.file.fileno(), 0, access=mmap.ACCESS_READ)
        return np.frombuffer(self._map, dtype, count, start)

    def check_crc(self, start: int, count: int, expected: int, label: str) -> None:
        """Compare the checksum of a range of the file with the one that a zip directory states."""
        crc = 0
        for position in range(start, start + count, _CHUNK):
            crc = zlib.crc32(self.read(position, min(_CHUNK, start + count - position)), crc)
        if crc != expected:
            raise BrokenFileError(f"{label} does not have its checksum: the file is damaged")

    def _check(self, start: int, count: int) -> None:
        if start < 0 or count < 0 or start + count > self.size:
            raise BrokenFileError(f"it ends at byte {self.size}, where {count} bytes from {start} on should be")
