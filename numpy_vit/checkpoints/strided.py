"""A tensor of a torch file, as an array: every bound is checked before anything is made."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from numpy_vit.checkpoints import dtypes
from numpy_vit.checkpoints.pickled_tensors import Storage, Tensor
from numpy_vit.checkpoints.sources import BrokenFileError, Budget, Source
from numpy_vit.tree import Array


@dataclass(frozen=True, slots=True)
class Place:
    """Where a storage's bytes are in the file, and whether they are big-endian."""

    start: int
    size: int
    swapped: bool


def item_size(storage: Storage) -> int:
    """Return the bytes of an item of a storage; raise BrokenFileError for a class that is not known."""
    if storage.kind not in dtypes.STORAGES:
        raise BrokenFileError(f"storage {storage.key!r:.40} is a {storage.kind!r:.40}, which NumPy cannot hold")
    return dtypes.STORED[dtypes.STORAGES[storage.kind]].itemsize


def read(source: Source, tensor: Tensor, place: Place, budget: Budget) -> Array:
    """Return the values of a tensor, C-contiguous and native; float8 and bfloat16 widened to float32.

    Parameters
    ----------
    place : where the bytes of its storage are.
    budget : what the file may still allocate; a stride of 0 makes much out of nothing.

    Raises
    ------
    BrokenFileError : the tensor reaches beyond its storage, the storage has another size than it should, or `budget`.
    """
    storage = tensor.storage
    width = item_size(storage)
    if storage.numel * width != place.size:
        raise BrokenFileError(f"storage {storage.key!r:.40} has {place.size} bytes, not {storage.numel} x {width}")
    name = dtypes.STORAGES[storage.kind] if tensor.dtype is None else tensor.dtype
    if name not in dtypes.STORED:
        raise BrokenFileError(f"its dtype {name!r:.40} is not one that can be read")
    if tensor.dtype is None and "Untyped" in storage.kind:
        raise BrokenFileError("it does not say which dtype it has")
    dtype = dtypes.STORED[name].newbyteorder(">" if place.swapped else "<")
    _check(tensor, storage.count * width, dtype.itemsize)
    start = place.start + storage.first * width + tensor.offset * dtype.itemsize
    count = math.prod(tensor.size)
    plain = dtypes.is_plain(name) and not place.swapped and not tensor.flags
    contiguous = _is_contiguous(tensor)
    if not (source.mapped and plain and contiguous):
        # What is widened or copied is held twice for a moment; a float32 of an 8-bit item takes four times as much.
        budget.charge(count * max(dtype.itemsize, 4))
    if count == 0:
        raw = np.empty(tensor.size, dtype)
    elif contiguous:
        raw = source.array(start, dtype, count).reshape(tensor.size)
    else:
        raw = _gather(source, start, dtype, tensor)
    return _flagged(dtypes.decode(raw, name), tensor.flags)


def _check(tensor: Tensor, available: int, width: int) -> None:
    """Refuse a tensor that is not within the `available` bytes of its storage."""
    if 16 * math.prod(max(n, 1) for n in tensor.size) >= 2**63:
        raise BrokenFileError(f"its size {tensor.size!s:.80} is too large for this machine")
    last = sum((n - 1) * stride for n, stride in zip(tensor.size, tensor.stride, strict=True))
    stop = tensor.offset if 0 in tensor.size else tensor.offset + last + 1
    # torch lets an empty tensor have any offset; it is never looked at there, nor is it here.
    if 0 not in tensor.size and stop * width > available:
        raise BrokenFileError(f"it reaches to byte {stop * width} of its storage, which has {available}")


def _is_contiguous(tensor: Tensor) -> bool:
    step = 1
    for n, stride in zip(reversed(tensor.size), reversed(tensor.stride), strict=True):
        if n != 1 and stride != step:
            return False
        step *= n
    return True


def _gather(source: Source, start: int, dtype: np.dtype[Any], tensor: Tensor) -> Array:
    """Copy a strided view; through a map, so that a few items of a large storage do not read all of it."""
    strides = [stride if n > 1 else 0 for n, stride in zip(tensor.size, tensor.stride, strict=True)]
    span = sum((n - 1) * stride for n, stride in zip(tensor.size, strides, strict=True)) + 1
    row = source.map(start, dtype, span)
    view = as_strided(row, tensor.size, [stride * dtype.itemsize for stride in strides], writeable=False)
    return np.array(view, order="C")


def _flagged(values: Array, flags: tuple[str, ...]) -> Array:
    if flags and values.dtype.kind not in "fc":
        raise BrokenFileError(f"it is {values.dtype}, yet has the flag {flags[0]}")
    if "conj" in flags:
        values = np.asarray(np.conj(values))  # of a 0-d array, NumPy makes a scalar
    return np.asarray(np.negative(values)) if "neg" in flags else values
