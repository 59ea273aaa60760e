"""Writing a state dict as torch.save does: a zip archive of a pickle and the tensors' bytes.

    NAME/data.pkl              a dict of tensors, each a call of torch._utils._rebuild_tensor_v2 on a storage
    NAME/byteorder             "little"
    NAME/data/0, data/1, ...   the storages, each at a multiple of 64 bytes
    NAME/version               "3"

The pickle is put together from its opcodes (Python's pickletools explains them), since its globals are torch's.
"""

from __future__ import annotations

import os
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from numpy_vit.files import replacing
from numpy_vit.tree import Array

_STORAGES = {
    "<f8": "DoubleStorage", "<f4": "FloatStorage", "<f2": "HalfStorage", "<i8": "LongStorage", "<i4": "IntStorage",
    "<i2": "ShortStorage", "|i1": "CharStorage", "|u1": "ByteStorage", "|b1": "BoolStorage",
}  # fmt: skip
_ALIGNMENT = 64
_LONG_AGO = (1980, 1, 1, 0, 0, 0)  # the same tensors give the same bytes


def write(path: str | os.PathLike[str], tensors: Mapping[str, Array]) -> None:
    """Write tensors to a file that torch.load(weights_only=True) opens, whole or not at all.

    Parameters
    ----------
    tensors : written in C order and little-endian, each with a storage of its own

    Raises
    ------
    ValueError : a dtype that torch lacks.

    Source: torch.serialization's zip format, version 3.
    """
    stored = {key: np.ascontiguousarray(a, a.dtype.newbyteorder("<")).reshape(a.shape) for key, a in tensors.items()}
    content = _pickle(stored)
    root = Path(path).stem or "archive"
    with replacing(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        _member(archive, f"{root}/data.pkl", content)
        _member(archive, f"{root}/byteorder", b"little")
        for number, array in enumerate(stored.values()):
            _member(archive, f"{root}/data/{number}", array.tobytes())
        _member(archive, f"{root}/version", b"3\n")


def _member(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    """Add a member whose data begin at a multiple of 64, by an extra field of padding, as torch does."""
    info = zipfile.ZipInfo(name, _LONG_AGO)
    begin = archive.start_dir + 30 + len(name.encode("utf-8")) + 4
    padding = -begin % _ALIGNMENT
    info.extra = b"FB" + struct.pack("<H", padding) + b"Z" * padding
    archive.writestr(info, data)


def _pickle(tensors: Mapping[str, Array]) -> bytes:
    body = b"".join(_text(key) + _tensor(i, a) for i, (key, a) in enumerate(tensors.items()))
    return b"\x80\x02}(" + body + b"u."  # PROTO 2, EMPTY_DICT, MARK, ..., SETITEMS, STOP


def _tensor(number: int, array: Array) -> bytes:
    code = array.dtype.str
    if code not in _STORAGES:
        raise ValueError(f"a torch file cannot hold {array.dtype}: convert it to float32")
    strides = [stride // array.itemsize for stride in array.strides]
    storage = _tuple(
        _text("storage"), _global("torch", _STORAGES[code]), _text(str(number)), _text("cpu"), _int(array.size)
    )
    arguments = _tuple(
        storage + b"Q",  # BINPERSID
        _int(0),
        _tuple(*map(_int, array.shape)),
        _tuple(*map(_int, strides)),
        b"\x89",  # NEWFALSE: requires no gradient
        _global("collections", "OrderedDict") + b")R",  # no hooks: EMPTY_TUPLE, REDUCE
    )
    return _global("torch._utils", "_rebuild_tensor_v2") + arguments + b"R"


def _global(module: str, name: str) -> bytes:
    return f"c{module}\n{name}\n".encode("ascii")


def _text(text: str) -> bytes:
    data = text.encode("utf-8")
    return b"X" + struct.pack("<I", len(data)) + data


def _int(value: int) -> bytes:
    if value < 2**31:
        return b"J" + struct.pack("<i", value)
    return b"\x8a\x08" + struct.pack("<q", value)  # LONG1


def _tuple(*parts: Any) -> bytes:
    return b"(" + b"".join(parts) + b"t"
