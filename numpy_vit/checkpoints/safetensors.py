"""The safetensors format: a JSON header that says where each tensor lies, then the bytes.

    u64 little-endian n | n bytes of JSON | data
    {"__metadata__": {"key": "text"}, "name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...}

Offsets count from the beginning of the data; tensors are little-endian, in C order.  The reader demands what
the reference implementation demands (huggingface/safetensors), and distinct names, as its format text says.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from numpy_vit.errors import CheckpointError
from numpy_vit.files import replacing
from numpy_vit.tree import Array

MAX_HEADER = 100_000_000  # bytes, the reference implementation's limit
MAX_NDIM = 64  # NumPy's limit

# How NumPy stores the bytes of each dtype.  The last three it lacks: their bits are read and then widened.
STORED: dict[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "I16": np.dtype("<i2"),
    "I8": np.dtype("i1"),
    "U64": np.dtype("<u8"),
    "U32": np.dtype("<u4"),
    "U16": np.dtype("<u2"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
    "BF16": np.dtype("<u2"),
    "F8_E4M3": np.dtype("u1"),
    "F8_E5M2": np.dtype("u1"),
}
WIDENED = ("BF16", "F8_E4M3", "F8_E5M2")


@dataclass(frozen=True)
class Entry:
    """Where one tensor lies: bytes [start, stop) of the file."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Array], dict[str, str]]:
    """Read a safetensors file; return its tensors, in the header's order, and its metadata.

    Every array is writable, in native byte order and owns its memory.  BF16, F8_E4M3 and F8_E5M2, which NumPy
    lacks, become float32 with the same values.

    Raises
    ------
    CheckpointError : the file cannot be read, is no safetensors file, or breaks a rule of the format.
    """
    try:
        with Path(path).open("rb") as file:
            entries, metadata = read_header(file, os.fspath(path))
            return {name: _tensor(file, path, name, entry) for name, entry in entries.items()}, metadata
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror or error}") from error


def write(
    path: str | os.PathLike[str], tensors: Mapping[str, Array], metadata: Mapping[str, str] | None = None
) -> None:
    """Write tensors to a safetensors file, whole or not at all; the same input gives the same bytes.

    Parameters
    ----------
    tensors : written in their order, little-endian and in C order, whatever they are in memory.
    metadata : texts by name.

    Raises
    ------
    ValueError : a dtype that the format lacks, a name it cannot hold, a header above 100 MB.
    TypeError : metadata that is not text.
    """
    header: dict[str, Any] = {}
    if metadata:
        if not all(isinstance(text, str) for pair in metadata.items() for text in pair):
            raise TypeError("metadata must be texts by name")
        header["__metadata__"] = dict(metadata)
    end = 0
    for name, array in tensors.items():
        if name == "__metadata__":
            raise ValueError("no tensor can be called '__metadata__'")
        begin, end = end, end + array.nbytes
        shape = list(array.shape)
        header[name] = {"dtype": _code(name, array.dtype), "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    text += b" " * (-len(text) % 8)  # the data begin at a multiple of 8
    if len(text) > MAX_HEADER:
        raise ValueError(f"the header takes {len(text)} bytes, the format allows {MAX_HEADER}")
    with replacing(path) as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for array in tensors.values():
            stored = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
            file.write(stored.reshape(-1).view(np.uint8).data)


def read_header(file: BinaryIO, source: str) -> tuple[dict[str, Entry], dict[str, str]]:
    """Read and check the header of an open safetensors file; return where the tensors lie, and the metadata.

    The entries fit the file: they are within it, do not overlap and cover its data, so the arrays together
    take at most the size of the file (twice that for BF16, four times for F8, which are widened).

    Parameters
    ----------
    file : opened for reading bytes, seekable.
    source : what to call the file in an error.

    Raises
    ------
    CheckpointError : the header breaks a rule of the format.
    """
    try:
        return _parse(file)
    except ValueError as error:  # json, UTF-8 and our own faults are all ValueErrors
        raise CheckpointError(f"{source}: not a valid safetensors file: {error}") from error
    except RecursionError:
        raise CheckpointError(f"{source}: not a valid safetensors file: its header nests too deep") from None


def _parse(file: BinaryIO) -> tuple[dict[str, Entry], dict[str, str]]:
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    length = int.from_bytes(file.read(8), "little")
    if size < 8:
        raise ValueError(f"it has {size} bytes, the header's length alone takes 8")
    if length > MAX_HEADER:
        raise ValueError(f"its header claims {length} bytes, at most {MAX_HEADER} are allowed")
    data = 8 + length
    if data > size:
        raise ValueError(f"its header claims {length} bytes, the file has {size}")
    header = json.loads(file.read(length).decode("utf-8"), object_pairs_hook=_distinct, parse_constant=_no_constant)
    if not isinstance(header, dict):
        raise ValueError("its header is not a JSON object")
    metadata = _metadata(header.pop("__metadata__", None))
    entries = {name: _entry(name, fields, data, size) for name, fields in header.items()}
    _check_tiling(entries, data, size)
    return entries, metadata


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, value in pairs:
        if name in result:
            raise ValueError(f"{name!r:.100} occurs twice in its header")
        name.encode("utf-8")  # "\ud800" is JSON but no text: UnicodeEncodeError
        result[name] = value
    return result


def _no_constant(text: str) -> None:
    raise ValueError(f"its header has a {text}, which is not JSON")


def _metadata(value: object) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError("its metadata is not a JSON object")
    for text in value.values():
        if not isinstance(text, str):
            raise ValueError("its metadata holds something else than texts")
        text.encode("utf-8")
    return value


def _entry(name: str, fields: object, data: int, size: int) -> Entry:
    label = f"{name!r:.100}"
    if not isinstance(fields, dict):
        raise ValueError(f"tensor {label} is not a JSON object")
    missing = [field for field in ("dtype", "shape", "data_offsets") if field not in fields]
    if missing:
        raise ValueError(f"tensor {label} has no {missing[0]}")
    dtype, shape, offsets = fields["dtype"], fields["shape"], fields["data_offsets"]
    if not isinstance(dtype, str) or dtype not in STORED:
        raise ValueError(f"tensor {label} has dtype {dtype!r:.40}, known are {', '.join(STORED)}")
    if not _naturals(shape) or len(shape) > MAX_NDIM:
        raise ValueError(f"tensor {label} has shape {shape!s:.80}, not a list of up to {MAX_NDIM} sizes")
    if not _naturals(offsets) or len(offsets) != 2:
        raise ValueError(f"tensor {label} has data_offsets {offsets!s:.80}, not two of them")
    begin, end = offsets
    if not begin <= end <= size - data:
        raise ValueError(f"tensor {label} has data_offsets {offsets!s:.80}, the data end at {size - data}")
    if end - begin != math.prod(shape) * STORED[dtype].itemsize:
        raise ValueError(f"tensor {label} has {end - begin} bytes, not those of {dtype} {shape!s:.80}")
    if 8 * math.prod(max(n, 1) for n in shape) > sys.maxsize:  # an empty (2**62, 0) is beyond NumPy
        raise ValueError(f"tensor {label} has shape {shape!s:.80}, too large for this machine")
    return Entry(dtype, tuple(shape), data + begin, data + end)


def _naturals(value: object) -> bool:
    # type() and not isinstance: True is an int to Python, not to JSON
    return isinstance(value, list) and all(type(n) is int and n >= 0 for n in value)


def _check_tiling(entries: dict[str, Entry], data: int, size: int) -> None:
    position = data
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].start, item[1].stop)):
        if entry.start != position:
            fault = "overlaps another" if entry.start < position else "leaves a hole before it"
            raise ValueError(f"tensor {name!r:.100} {fault}: it begins at {entry.start}, not at {position}")
        position = entry.stop
    if position != size:
        raise ValueError(f"its tensors end at byte {position}, the file at {size}")


def _tensor(file: BufferedReader, path: str | os.PathLike[str], name: str, entry: Entry) -> Array:
    stored = STORED[entry.dtype]
    array: Array = np.empty(entry.shape, np.uint8 if entry.dtype == "BOOL" else stored)
    file.seek(entry.start)
    if file.readinto(array.reshape(-1).view(np.uint8).data) != array.nbytes:
        raise CheckpointError(f"{path}: ends in the middle of tensor {name!r:.100}")
    if entry.dtype == "BOOL":  # a byte other than 0 and 1 would be no valid bool to NumPy
        return np.not_equal(array, 0, out=np.empty(entry.shape, np.bool_))
    if entry.dtype in WIDENED:
        return widen(array, entry.dtype)
    return array.astype(stored.newbyteorder("="), copy=False)


def _code(name: str, dtype: np.dtype[Any]) -> str:
    for code, stored in STORED.items():
        if stored == dtype.newbyteorder("<") and code not in WIDENED:
            return code
    raise ValueError(f"tensor {name!r} has dtype {dtype}, which safetensors cannot hold")


def widen(bits: Array, dtype: str) -> Array:
    """Return the float32 values of floats that NumPy lacks, given as their bits.

    Parameters
    ----------
    bits : uint16 for "BF16", uint8 for "F8_E4M3" and "F8_E5M2"; any shape.
    dtype : one of these names.

    Source: Micikevicius et al. (2022), "FP8 Formats for Deep Learning", table 1; bfloat16 is the upper half
    of a float32.
    """
    values = np.empty(bits.shape, np.float32)
    if dtype == "BF16":
        halves = values.view(np.uint32)
        halves[...] = bits
        halves <<= 16
    else:
        values[...] = FLOAT8[dtype][bits]
    return values


def _float8(fraction_bits: int, bias: int) -> Array:
    """Return the values of the 256 codes sign | exponent | fraction, infinities and nans not considered."""
    code = np.arange(256)
    exponent = (code & 127) >> fraction_bits
    fraction = code & (2**fraction_bits - 1)
    leading = np.where(exponent > 0, 2.0**fraction_bits, 0.0)  # subnormals lack the leading 1
    magnitude = np.ldexp(leading + fraction, np.maximum(exponent, 1) - bias - fraction_bits)
    values: Array = np.where(code < 128, magnitude, -magnitude).astype(np.float32)
    return values


FLOAT8 = {"F8_E4M3": _float8(3, 7), "F8_E5M2": _float8(2, 15)}
FLOAT8["F8_E4M3"][[0x7F, 0xFF]] = np.nan  # no infinities: the other codes of the top exponent are numbers
FLOAT8["F8_E5M2"][[0x7C, 0xFC]] = np.inf, -np.inf
FLOAT8["F8_E5M2"][[0x7D, 0x7E, 0x7F, 0xFD, 0xFE, 0xFF]] = np.nan
