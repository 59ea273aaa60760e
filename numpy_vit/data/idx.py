"""The idx format of the MNIST family: a big-endian header, then unsigned bytes.

Two zero bytes, the type (8: unsigned byte), the number of dimensions, each dimension as a big-endian uint32,
then the array in C order.  The first four bytes read as one number are 2051 for images and 2049 for labels.

Source: http://yann.lecun.com/exdb/mnist/
"""

from __future__ import annotations

import gzip
import math
import os
import struct
import zlib
from pathlib import Path
from typing import BinaryIO, TypeAlias

import numpy as np

from numpy_vit.errors import DataError
from numpy_vit.files import replacing
from numpy_vit.tree import Array

IMAGES, LABELS = 2051, 2049
DIMENSIONS = {LABELS: 1, IMAGES: 3}
CONTENTS = {LABELS: "labels", IMAGES: "images"}
GZIP_MAGIC = b"\x1f\x8b"
DEFLATE_LIMIT = 1032  # deflate spends at least 2 bits on 258 bytes: no stream grows by a greater factor
CHUNK = 1 << 20
Stream: TypeAlias = BinaryIO | gzip.GzipFile


def read_idx(path: str | os.PathLike[str], magic: int | None = None) -> Array:
    """Read an idx file of images or labels, compressed or not (its first bytes decide, not its name).

    The header is believed only as far as the file bears it out: memory grows with the bytes that are really
    there, at most one more than the header declares.

    Parameters
    ----------
    magic : IMAGES or LABELS where the caller knows what it must be; default: either.

    Returns
    -------
    (n, Y, X) uint8 for images, (n,) uint8 for labels.

    Raises
    ------
    DataError : the file is missing, is not such an idx file, or has fewer or more bytes than its header
        declares.
    """
    file_path = Path(path)
    try:
        with file_path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            compressed = file.read(2) == GZIP_MAGIC
            file.seek(0)
            if not compressed:
                return _read(file, file_path, size, magic)
            with gzip.GzipFile(fileobj=file, mode="rb") as content:
                return _read(content, file_path, size * DEFLATE_LIMIT, magic)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{file_path} is a damaged gzip file ({error}); download it again") from error
    except OSError as error:
        reason = error.strerror or error
        raise DataError(f"{file_path} cannot be read ({reason}); check path and permissions") from error


def write_idx(path: str | os.PathLike[str], array: Array) -> None:
    """Write images or labels as a gzip-compressed idx file, whole or not at all.

    The gzip header holds neither time nor name, so the same array gives the same bytes (for one zlib).

    Parameters
    ----------
    array : (n, Y, X) or (n,) uint8, not empty.

    Raises
    ------
    TypeError, ValueError : another dtype or number of dimensions, or no elements.
    """
    if array.dtype != np.uint8:
        raise TypeError(f"idx files here hold uint8, not {array.dtype}; convert the array with astype")
    magics = {dimensions: magic for magic, dimensions in DIMENSIONS.items()}
    if array.ndim not in magics or array.size == 0:
        raise ValueError(f"idx files hold images (n, Y, X) or labels (n,), at least one, not {array.shape}")
    header = struct.pack(f">{1 + array.ndim}I", magics[array.ndim], *array.shape)
    with replacing(path) as file, gzip.GzipFile("", "wb", compresslevel=9, fileobj=file, mtime=0) as content:
        content.write(header + array.tobytes())


def _read(file: Stream, path: Path, most: int, magic: int | None) -> Array:
    """Read the header and what follows from a file that cannot hold more than `most` bytes."""
    shape = _read_shape(file, path, magic)
    declared = math.prod(shape)
    if declared == 0:
        raise DataError(f"{path} declares the empty shape {shape}; download it again")
    header = 4 + 4 * len(shape)
    if header + declared > most:  # before anything is read: the header may claim 2^96 bytes
        raise DataError(
            f"{path} declares {shape}, {declared} bytes, but is so short that it holds at most "
            f"{most - header}; it is truncated: download it again"
        )
    content = _read_at_most(file, declared + 1)
    if len(content) < declared:
        raise DataError(
            f"{path} is truncated: it declares {shape}, {declared} bytes, and holds {len(content)}; download it again"
        )
    if len(content) > declared:
        raise DataError(f"{path} has bytes beyond the {declared} of its shape {shape}; download it again")
    return np.frombuffer(content, np.uint8).reshape(shape)


def _read_shape(file: Stream, path: Path, magic: int | None) -> tuple[int, ...]:
    start = bytes(_read_at_most(file, 4))
    if len(start) < 4:
        raise DataError(f"{path} is truncated: {len(start)} bytes are no idx header; download it again")
    found = int.from_bytes(start, "big")
    if start[:3] == b"\0\0\x08" and found not in DIMENSIONS:
        raise DataError(
            f"{path} declares {start[3]} dimensions; images have 3 (magic {IMAGES}) and labels 1 "
            f"(magic {LABELS}): give a file of the MNIST family"
        )
    if found not in DIMENSIONS:
        raise DataError(
            f"{path} is not an idx file of bytes: it begins with {start.hex(' ')}, not with magic {IMAGES} "
            f"(images) or {LABELS} (labels); give a file of the MNIST family"
        )
    if magic is not None and found != magic:
        raise DataError(
            f"{path} holds {CONTENTS[found]} (magic {found}) where {CONTENTS[magic]} (magic {magic}) belong; "
            "see whether the files were swapped"
        )
    length = 4 * DIMENSIONS[found]
    sizes = bytes(_read_at_most(file, length))
    if len(sizes) < length:
        raise DataError(f"{path} is truncated: it ends within the idx header; download it again")
    return struct.unpack(f">{DIMENSIONS[found]}I", sizes)


def _read_at_most(file: Stream, count: int) -> bytearray:
    """Read `count` bytes or all there are; the buffer grows with what arrives, never by what was promised."""
    content = bytearray()
    while len(content) < count:
        piece = file.read(min(CHUNK, count - len(content)))
        if not piece:
            break
        content += piece
    return content
