"""The directory of a zip archive, read by ourselves.

Python's zipfile refuses torch files that were saved with checksums off, which are stored as 0, and does not say
where a stored member's bytes lie, which a map needs.  What it allows and we refuse: members that overlap (a few
bytes that unpack many times over), two members of one name (which of them is read depends on the reader),
encryption.  Source: PKWARE, APPNOTE.TXT 6.3.10, sections 4.3 and 4.5.3.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from numpy_vit.checkpoints.sources import BrokenFileError, Source
from numpy_vit.tree import Array

STORED, DEFLATED = 0, 8
MAX_DIRECTORY = 64 << 20
_RATIO = 1032  # deflate cannot do better: 258 bytes for two bits
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Member:
    """One file of the archive; its (packed) bytes are those from `start` on."""

    name: str
    method: int
    crc: int  # 0 may mean that it was not computed
    packed: int
    size: int
    start: int


def members(source: Source) -> dict[str, Member]:
    """Return the members of an archive by name, in the directory's order.

    Raises
    ------
    BrokenFileError : no directory, or one that does not fit the file.
    """
    start, size, count = _directory(source)
    if size > MAX_DIRECTORY or count * 46 > size:
        raise BrokenFileError(f"its zip directory claims {count} members in {size} bytes")
    directory = source.read(start, size)
    found: dict[str, Member] = {}
    spans: list[tuple[int, int]] = []
    position = 0
    for _ in range(count):
        member, position, header = _entry(source, directory, position)
        if member.name in found:
            raise BrokenFileError(f"its zip directory has {member.name!r:.100} twice")
        found[member.name] = member
        spans.append((header, member.start + member.packed))
    if position != size:
        raise BrokenFileError(f"its zip directory has more than the {count} members that it claims")
    spans.sort()
    for (_, stop), (following, _) in pairwise([*spans, (start, start)]):
        if stop > following:
            raise BrokenFileError("members of its zip directory overlap")
    return found


def unpack(source: Source, member: Member) -> Array:
    """Return the bytes of a member, stored or deflated, its checksum compared where there is one."""
    if member.method == STORED:
        check(source, member)
        return source.array(member.start, np.dtype(np.uint8), member.size)
    if member.size > _RATIO * member.packed + 64:
        raise BrokenFileError(f"{member.name!r:.100} claims to unpack from {member.packed} to {member.size} bytes")
    data = np.empty(member.size, np.uint8)
    filled = crc = 0
    inflate = zlib.decompressobj(-15)
    try:
        for position in range(member.start, member.start + member.packed, _CHUNK):
            pending = source.read(position, min(_CHUNK, member.start + member.packed - position))
            while pending and not inflate.eof:
                piece = inflate.decompress(pending, _CHUNK)
                pending = inflate.unconsumed_tail
                if filled + len(piece) > member.size:
                    raise BrokenFileError(f"{member.name!r:.100} unpacks to more than its {member.size} bytes")
                data[filled : filled + len(piece)] = np.frombuffer(piece, np.uint8)
                filled += len(piece)
                crc = zlib.crc32(piece, crc)
    except zlib.error as error:
        raise BrokenFileError(f"{member.name!r:.100} cannot be unpacked: {error}") from error
    if filled != member.size or not inflate.eof:
        raise BrokenFileError(f"{member.name!r:.100} unpacks to {filled} bytes instead of {member.size}")
    if crc != member.crc:
        raise BrokenFileError(f"{member.name!r:.100} does not have its checksum: the file is damaged")
    return data


def check(source: Source, member: Member) -> None:
    """Compare a stored member's checksum, unless it is 0 (not computed) or the file is mapped (and not read)."""
    if member.crc and not source.mapped:
        source.check_crc(member.start, member.size, member.crc, f"{member.name!r:.100}")


def _directory(source: Source) -> tuple[int, int, int]:
    """Return where the central directory begins, its size and its number of entries."""
    tail = source.read(max(source.size - 65557, 0), min(source.size, 65557))
    at = tail.rfind(b"PK\5\6")
    while at >= 0 and (len(tail) < at + 22 or at + 22 + int.from_bytes(tail[at + 20 : at + 22], "little") != len(tail)):
        at = tail.rfind(b"PK\5\6", 0, at)
    if at < 0:
        raise BrokenFileError("its zip directory is missing: the file is cut off or damaged")
    count, size, start = struct.unpack("<HII", tail[at + 10 : at + 20])
    locator = source.size - len(tail) + at - 20
    if locator >= 0 and (record := source.read(locator, 20))[:4] == b"PK\6\7":
        (at64,) = struct.unpack("<Q", record[8:16])
        record = source.read(at64, 56)
        if record[:4] != b"PK\6\6":
            raise BrokenFileError("its zip64 directory is missing")
        count, size, start = struct.unpack("<QQQ", record[32:56])
    return start, size, count


def _entry(source: Source, directory: bytes, position: int) -> tuple[Member, int, int]:
    """Return the member at `position`, the position of the next, and where its local header is."""
    fixed = directory[position : position + 46]
    if len(fixed) < 46 or fixed[:4] != b"PK\1\2":
        raise BrokenFileError("its zip directory is damaged")
    flags, method, crc = struct.unpack("<HH4xI", fixed[8:20])
    packed, size, name_length, extra_length, comment_length = struct.unpack("<IIHHH", fixed[20:34])
    (header,) = struct.unpack("<I", fixed[42:46])
    name_end = position + 46 + name_length
    try:
        name = directory[position + 46 : name_end].decode("utf-8" if flags & 0x800 else "cp437")
    except UnicodeDecodeError:
        raise BrokenFileError("its zip directory has a name that is not UTF-8") from None
    extra = directory[name_end : name_end + extra_length]
    size, packed, header = _zip64(extra, size, packed, header)
    if flags & 1:
        raise BrokenFileError(f"{name!r:.100} is encrypted")
    if method not in (STORED, DEFLATED):
        raise BrokenFileError(f"{name!r:.100} is packed by method {method}; repack the archive without compression")
    if method == STORED and size != packed:
        raise BrokenFileError(f"{name!r:.100} is stored, yet has the sizes {packed} and {size}")
    local = source.read(header, 30)
    if local[:4] != b"PK\3\4":
        raise BrokenFileError(f"{name!r:.100} is not where the zip directory says")
    start = header + 30 + sum(struct.unpack("<HH", local[26:30]))  # the local lengths differ from the directory's
    if start + packed > source.size:
        raise BrokenFileError(f"{name!r:.100} reaches beyond the end of the file")
    return Member(name, method, crc, packed, size, start), name_end + extra_length + comment_length, header


def _zip64(extra: bytes, *values: int) -> tuple[int, ...]:
    """Replace the values that are 0xffffffff by those of the extra field with id 1, in this order."""
    position = 0
    while position + 4 <= len(extra):
        kind, length = struct.unpack("<HH", extra[position : position + 4])
        if kind == 1:
            wide = iter(
                struct.unpack(
                    f"<{length // 8}Q", extra[position + 4 : position + 4 + length // 8 * 8].ljust(length // 8 * 8)
                )
            )
            return tuple(next(wide, value) if value == 0xFFFFFFFF else value for value in values)
        position += 4 + length
    return values
