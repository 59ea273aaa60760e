"""NumPy arrays inside of pickles: the inert records that their reduction makes, read as arrays of plain numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from numpy_vit.checkpoints.pickled_tensors import Encoded
from numpy_vit.checkpoints.pickles import Record
from numpy_vit.checkpoints.sources import BrokenFileError, Budget
from numpy_vit.tree import Array

_RECONSTRUCT = "numpy.core.multiarray._reconstruct"  # an empty array, filled by the state that follows
_FROM_BUFFER = "numpy.core.numeric._frombuffer"  # protocol 5
_NUMBERS = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16", "b1")
_DTYPES: dict[str, np.dtype[Any]] = {order + text: np.dtype(order + text) for order in "<>" for text in _NUMBERS}


def is_array(record: Record) -> bool:
    """Return whether a record is an array of numbers; arrays of texts or objects are not."""
    description = _description(record)
    return description is not None and _dtype(description[0]) is not None


def read(record: Record, budget: Budget) -> Array:
    """Return a copy of the array in native byte order and C order.

    Raises
    ------
    BrokenFileError : its bytes do not fit its shape.
    """
    description = _description(record)
    dtype = None if description is None else _dtype(description[0])
    if description is None or dtype is None:
        raise BrokenFileError("a NumPy array in it is described wrongly")
    _, shape, fortran, data = description
    if not isinstance(shape, (tuple, list)) or len(shape) > 64 or not all(type(n) is int and n >= 0 for n in shape):
        raise BrokenFileError("a NumPy array in it has an impossible shape")
    raw = _bytes(data)
    if len(raw) != math.prod(shape) * dtype.itemsize or 8 * math.prod(max(n, 1) for n in shape) >= 2**63:
        raise BrokenFileError(f"a NumPy array in it has {len(raw)} bytes, not those of {dtype} {shape!s:.80}")
    budget.charge(2 * len(raw))
    stored = np.frombuffer(raw, np.uint8 if dtype.kind == "b" else dtype) if raw else np.empty(0, dtype)
    array = stored.reshape(shape, order="F" if fortran else "C")
    return np.array(array != 0 if dtype.kind == "b" else array, dtype.newbyteorder("="), order="C")


def _description(record: Record) -> tuple[Any, Any, Any, Any] | None:
    """Return dtype, shape, whether in Fortran order, and the bytes."""
    if record.name == _RECONSTRUCT and isinstance(record.state, tuple) and len(record.state) == 5:
        _, shape, dtype, fortran, data = record.state
        return dtype, shape, fortran is True or fortran == 1, data
    if record.name == _FROM_BUFFER and len(record.args) == 4:
        data, dtype, shape, order = record.args
        return dtype, shape, order == "F", data
    return None


def _dtype(record: Any) -> np.dtype[Any] | None:
    """Return the dtype of a record that calls numpy.dtype("f4", False, True) and gives it a byte order."""
    if not isinstance(record, Record) or record.name != "numpy.dtype" or not record.args:
        return None
    text = record.args[0]
    if not isinstance(text, str) or text not in _NUMBERS:
        return None
    order = record.state[1] if isinstance(record.state, tuple) and len(record.state) > 1 else "="
    return _DTYPES[(">" if order == ">" else "<") + text]


def _bytes(data: Any) -> bytes:
    if isinstance(data, Encoded):
        data = data.text
    if isinstance(data, str):
        try:
            return data.encode("latin1")
        except UnicodeEncodeError:
            raise BrokenFileError("a NumPy array in it has characters that are no bytes") from None
    if not isinstance(data, bytes):
        raise BrokenFileError("a NumPy array in it has no bytes")
    return data
