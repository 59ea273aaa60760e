"""NumPy's own files: .npy, a header and the items, and .npz, a zip of them.

    93 "NUMPY" major minor | u16 (version 1) or u32 n | n bytes of a Python dict | items

The dict has descr, fortran_order and shape; it is matched, never evaluated.  bfloat16, which NumPy lacks, is
written as two bytes without a type, V2.  Source: NumPy, numpy/lib/_format_impl.py.
"""

from __future__ import annotations

import math
import re

import numpy as np

from numpy_vit.checkpoints import dtypes, zips
from numpy_vit.checkpoints.sources import BrokenFileError, Source
from numpy_vit.tree import Array

MAGIC = b"\x93NUMPY"
_MAX_HEADER = 10_000  # NumPy's own limit
_FIELD = re.compile(
    r"""\s*['"](descr|fortran_order|shape)['"]\s*:\s*(?:['"]([^'"]*)['"]|(True|False)|\(([0-9L,\s]*)\))\s*(?:,|(?=\}))"""
)
_NUMBER = re.compile(r"[<>|=](?:[iu][1248]|f[248]|c8|c16|b1)")
_TEXT = re.compile(r"[<>|=][USVMm][0-9]*(?:\[.*\])?")  # and raw bytes and dates
_RECORDS = "[]"


def read_npy(source: Source) -> dict[str, Array]:
    """Read one array; its key is the empty text."""
    start, header = _header(source.read(0, min(source.size, _MAX_HEADER + 12)))
    array = _array(source, start, source.size - start, header)
    if array is None:
        raise BrokenFileError("its items are texts, dates or records, not numbers")
    return {"": array}


def read_npz(source: Source, members: dict[str, zips.Member]) -> dict[str, Array]:
    """Read all arrays of numbers; other members, and arrays of texts, dates or records, are left out."""
    result: dict[str, Array] = {}
    for name, member in members.items():
        if not name.endswith(".npy"):
            continue
        try:
            array = _member(source, member)
        except BrokenFileError as fault:
            raise BrokenFileError(f"array {name.removesuffix('.npy')!r:.100}: {fault}") from None
        if array is not None:
            result[name.removesuffix(".npy")] = array
    return result


def _member(source: Source, member: zips.Member) -> Array | None:
    if member.method == zips.STORED:
        zips.check(source, member)
        start, header = _header(source.read(member.start, min(member.size, _MAX_HEADER + 12)))
        return _array(source, member.start + start, member.size - start, header)
    data = zips.unpack(source, member)
    start, header = _header(data[: _MAX_HEADER + 12].tobytes())
    return _array(data, start, data.size - start, header)


def _header(data: bytes) -> tuple[int, tuple[str, bool, tuple[int, ...]]]:
    """Return where the items begin, their dtype as NumPy writes it, whether in Fortran order, and the shape."""
    if data[:6] != MAGIC or len(data) < 12 or not 1 <= data[6] <= 3:
        raise BrokenFileError("it does not begin as a .npy file of version 1, 2 or 3")
    width = 2 if data[6] == 1 else 4
    length = int.from_bytes(data[8 : 8 + width], "little")
    start = 8 + width + length
    if length > _MAX_HEADER or start > len(data):
        raise BrokenFileError(f"its .npy header claims {length} bytes")
    text = data[8 + width : start].decode("latin1").strip()
    fields: dict[str, str | bool | tuple[int, ...]] = {}
    position = 1
    while text[:1] == "{" and (match := _FIELD.match(text, position)):
        name, quoted, flag, numbers = match.groups()
        fields[name] = quoted if quoted is not None else flag == "True" if flag else _shape(numbers)
        position = match.end()
    descr, fortran, shape = (fields.get(name) for name in ("descr", "fortran_order", "shape"))
    well = isinstance(descr, str) and isinstance(fortran, bool) and isinstance(shape, tuple)
    if text.startswith("{'descr': ["):
        return start, (_RECORDS, False, ())
    if not well or text[position:].strip() != "}":
        raise BrokenFileError(f"its .npy header is not understood: {text!r:.80}")
    assert isinstance(descr, str) and isinstance(fortran, bool) and isinstance(shape, tuple)
    return start, (descr, fortran, shape)


def _shape(text: str) -> tuple[int, ...]:
    numbers = [part.strip().removesuffix("L") for part in text.split(",")]
    if numbers[-1] == "":
        numbers.pop()
    if len(numbers) > 64 or not all(part.isdecimal() and len(part) < 20 for part in numbers):
        raise BrokenFileError(f"its .npy header has the shape ({text:.80})")
    return tuple(int(part) for part in numbers)


def _array(data: Source | Array, start: int, size: int, header: tuple[str, bool, tuple[int, ...]]) -> Array | None:
    """Return the items, C-contiguous and native; None where they are no numbers."""
    descr, fortran, shape = header
    if descr.lstrip("<>|=") == "O":
        raise BrokenFileError("its items are Python objects, a pickle, which is never read")
    name = "bfloat16" if descr.lstrip("<>|=") == "V2" else "bool" if descr == "|b1" else ""
    if descr.lstrip("<>|=") == "V1":
        raise BrokenFileError("its items are single bytes of an unknown type (fp8?); save them as float32 or uint8")
    if not name and not _NUMBER.fullmatch(descr):
        if descr == _RECORDS or _TEXT.fullmatch(descr):
            return None
        raise BrokenFileError(f"its dtype {descr!r:.40} is not one that can be read")
    dtype = np.dtype("u1") if name == "bool" else np.dtype("<u2") if name else np.dtype(descr)
    count = math.prod(shape)
    if size != count * dtype.itemsize or 16 * math.prod(max(n, 1) for n in shape) >= 2**63:
        raise BrokenFileError(f"it has {size} bytes of items, not those of {descr} {shape!s:.80}")
    raw = data.array(start, dtype, count) if isinstance(data, Source) else data[start:].view(dtype)
    ordered = raw.reshape(shape, order="F" if fortran else "C")
    return dtypes.decode(ordered, name)
