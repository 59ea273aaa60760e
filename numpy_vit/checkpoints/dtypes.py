"""PyTorch's dtypes: how NumPy stores their bytes, and the values of those that NumPy lacks."""

from __future__ import annotations

from typing import Any

import numpy as np

from numpy_vit.checkpoints import safetensors
from numpy_vit.tree import Array

# bool is read as bytes, because a byte other than 0 and 1 would be no valid bool to NumPy.
STORED: dict[str, np.dtype[Any]] = {
    "float64": np.dtype("<f8"),
    "float32": np.dtype("<f4"),
    "float16": np.dtype("<f2"),
    "bfloat16": np.dtype("<u2"),
    "int64": np.dtype("<i8"),
    "int32": np.dtype("<i4"),
    "int16": np.dtype("<i2"),
    "int8": np.dtype("i1"),
    "uint64": np.dtype("<u8"),
    "uint32": np.dtype("<u4"),
    "uint16": np.dtype("<u2"),
    "uint8": np.dtype("u1"),
    "bool": np.dtype("u1"),
    "complex128": np.dtype("<c16"),
    "complex64": np.dtype("<c8"),
    "complex32": np.dtype([("real", "<f2"), ("imag", "<f2")]),
    "float8_e4m3fn": np.dtype("u1"),
    "float8_e5m2": np.dtype("u1"),
    "float8_e4m3fnuz": np.dtype("u1"),
    "float8_e5m2fnuz": np.dtype("u1"),
    "float8_e8m0fnu": np.dtype("u1"),
}

# The classes of which a torch file says its storages are; UntypedStorage counts bytes.
STORAGES = {
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "ComplexDoubleStorage": "complex128",
    "ComplexFloatStorage": "complex64",
    "UntypedStorage": "uint8",
    "_UntypedStorage": "uint8",
}


def is_plain(name: str) -> bool:
    """Return whether NumPy has this dtype and any bytes are valid in it: nothing is to be done but read them."""
    return name != "bool" and name not in _WIDENED and name != "complex32"


def decode(raw: Array, name: str) -> Array:
    """Return the values of what was read as `STORED[name]`, in either byte order: native, contiguous, any shape.

    The result may be `raw` itself.
    """
    if name == "bool":
        return np.not_equal(raw, 0, out=np.empty(raw.shape, np.bool_))
    if name == "complex32":
        values = np.empty(raw.shape, np.complex64)
        values.real, values.imag = raw["real"], raw["imag"]
        return values
    if name in _WIDENED:
        code = _WIDENED[name]
        if code in _TABLES:
            values = np.empty(raw.shape, np.float32)
            values[...] = _TABLES[code][raw]
            return values
        return safetensors.widen(raw, code)
    return np.asarray(raw, raw.dtype.newbyteorder("="), order="C")


_WIDENED = {
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
    "float8_e8m0fnu": "F8_E8M0",
}


def _fnuz(code: str, top: list[float]) -> Array:
    """Return a table without infinities and without -0, whose code is the only nan; `top` its largest values.

    The exponent's bias is one more than in the usual format of these bits, so all other values are half as large.
    """
    values: Array = safetensors.FLOAT8[code] / 2
    values[128 - len(top) : 128] = top
    values[256 - len(top) :] = -np.array(top)
    values[128] = np.nan
    return values


_TABLES = {
    "F8_E4M3FNUZ": _fnuz("F8_E4M3", [240.0]),
    "F8_E5M2FNUZ": _fnuz("F8_E5M2", [32768.0, 40960.0, 49152.0, 57344.0]),
    "F8_E8M0": np.append(np.ldexp(1.0, np.arange(255) - 127), np.nan).astype(np.float32),
}
