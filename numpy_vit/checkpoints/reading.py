"""Every kind of checkpoint as one flat dict of arrays; the format is told by the content, never by the name."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from numpy_vit.checkpoints import dtypes, npz, safetensors, torch_files, zips
from numpy_vit.checkpoints.sources import BrokenFileError, Source
from numpy_vit.errors import CheckpointError
from numpy_vit.tree import Array

MAX_INDEX = 100_000_000  # bytes of an index.json


def read_tensors(path: str | os.PathLike[str], mmap: bool = False) -> dict[str, Array]:
    """Read every tensor of a file by its path in the file: "model/blocks.0.norm1.weight".

    Read are: torch.save's zip archives and its older files, TorchScript archives (their parameters and buffers),
    safetensors, *.index.json of several such files, npz and npy.  Nothing is executed, nothing is unwrapped.

    Parameters
    ----------
    path : a file; its name does not matter.
    mmap : make contiguous tensors of dtypes that NumPy has read-only maps of the file, in no time and memory.
        Checksums are not compared then.

    Returns
    -------
    tensors : C-contiguous arrays in native byte order and the file's own dtype; bfloat16 and float8 become float32.
        The keys join containers by "/" and attributes of objects by "."; safetensors and npz have theirs, a single
        array the empty text.  Tensors that share their bytes in a torch file are one array if they are the same
        view of them, and copies if not.

    Raises
    ------
    CheckpointError : the file cannot be read, is of no known format, damaged, or made to do harm.
    """
    try:
        return _read(Path(path), mmap, index=True)
    except BrokenFileError as fault:
        raise CheckpointError(f"{path}: {fault}") from None
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror or error}") from error


def _read(path: Path, mmap: bool, index: bool) -> dict[str, Array]:
    if path.exists() and not path.is_file():  # reading a pipe could wait for ever
        raise BrokenFileError("it is a folder or a device, not a file")
    with path.open("rb") as file:
        source = Source(file, mmap)
        head = source.read(0, min(source.size, 512))
        if index and head.lstrip()[:1] == b"{":
            return _shards(path, source)
        if head[:4] in (b"PK\3\4", b"PK\5\6"):
            return _zip(source)
        if head[:6] == npz.MAGIC:
            return npz.read_npy(source)
        if head[:1] == b"\x80" and torch_files.MAGIC.to_bytes(10, "little") in head[:32]:
            return torch_files.read_legacy(source)
        if head[8:9] in (b"{", b" ") and int.from_bytes(head[:8], "little") < 1 << 40:
            return _safetensors(path, source)
    raise BrokenFileError(_stranger(head))


def _zip(source: Source) -> dict[str, Array]:
    members = zips.members(source)
    root = torch_files.root_of(list(members))
    if root is not None:
        return torch_files.read_zip(source, members, root)
    if any(name.endswith(".npy") for name in members) or source.size == 22:  # 22: an archive of nothing
        return npz.read_npz(source, members)
    raise BrokenFileError("it is a zip archive without a torch file's data.pkl and without .npy members; unpack it")


def _safetensors(path: Path, source: Source) -> dict[str, Array]:
    if not source.mapped:
        return safetensors.read(path)[0]
    entries, _ = safetensors.read_header(source.file, os.fspath(path))
    tensors: dict[str, Array] = {}
    for name, entry in entries.items():
        stored = safetensors.STORED[entry.dtype]
        count = (entry.stop - entry.start) // stored.itemsize
        if entry.dtype == "BOOL":
            tensors[name] = dtypes.decode(source.array(entry.start, dtypes.STORED["bool"], count), "bool")
        else:
            raw = source.array(entry.start, stored, count)
            widened = entry.dtype in safetensors.WIDENED
            tensors[name] = safetensors.widen(raw, entry.dtype) if widened else dtypes.decode(raw, "")
        tensors[name] = tensors[name].reshape(entry.shape)
    return tensors


def _shards(path: Path, source: Source) -> dict[str, Array]:
    """Read the files that an index.json lists, all of them in its own folder, and check that they are as it says."""
    files = _weight_map(source)
    shards: dict[str, dict[str, Array]] = {}
    for file in dict.fromkeys(files.values()):
        if not file or file in (".", "..") or any(c in file for c in "/\\:\0"):
            raise BrokenFileError(f"its index lists {file!r:.100}, which is not a file of its folder")
        try:
            shards[file] = _read(path.parent / file, source.mapped, index=False)
        except BrokenFileError as fault:
            raise BrokenFileError(f"its part {file!r:.100}: {fault}") from None
        except OSError as error:
            raise BrokenFileError(f"its part {file!r:.100} cannot be read: {error.strerror or error}") from None
    for file, tensors in shards.items():
        for name in tensors:
            if files.get(name) != file:
                raise BrokenFileError(f"its part {file!r:.100} has {name!r:.100}, which the index does not list there")
    for name, file in files.items():
        if name not in shards[file]:
            raise BrokenFileError(f"its part {file!r:.100} lacks the tensor {name!r:.100}")
    return {name: shards[file][name] for name, file in files.items()}


def _weight_map(source: Source) -> dict[str, str]:
    if source.size > MAX_INDEX:
        raise BrokenFileError(f"it is JSON of {source.size} bytes; an index has at most {MAX_INDEX}")
    try:
        content: Any = json.loads(source.read(0, source.size).decode("utf-8"))
    except (ValueError, RecursionError):
        raise BrokenFileError("it begins as JSON does, but is not valid JSON") from None
    files = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(files, dict) or not all(isinstance(file, str) for file in files.values()):
        raise BrokenFileError(
            "it is JSON without a weight_map: no checkpoint, nor the index of one; give the file of the weights"
        )
    return files


_STRANGERS = {
    b"\x89HDF": "it is an HDF5 file (Keras); load it with Keras and save its weights with numpy.savez",
    b"\x1f\x8b": "it is compressed by gzip; unpack it",
    b"BZh": "it is compressed by bzip2; unpack it",
    b"\xfd7zXZ": "it is compressed by xz; unpack it",
    b"\x28\xb5\x2f\xfd": "it is compressed by zstd; unpack it",
    b"7z\xbc\xaf": "it is a 7z archive; unpack it",
    b"Rar!": "it is a RAR archive; unpack it",
    b"GGUF": "it is a GGUF file; take the safetensors of the same model",
    b"version https://git-lfs": "it is a git-lfs pointer, not the file itself; run git lfs pull",
    b"<": "it is a web page or XML, not a checkpoint; look at what was downloaded",
}


def _stranger(head: bytes) -> str:
    """Return what a file that cannot be read is, and what to do about it."""
    if not head:
        return "it is empty"
    if head[257:262] == b"ustar":
        return "it is a tar archive; unpack it, or if torch 0.1 wrote it, load it there and save it again"
    if head[:1] == b"\x80" and head[1:2] in (b"\2", b"\3", b"\4", b"\5"):
        return "it is a pickle that torch.save did not write; load it where it was made and use numpy.savez"
    for start, text in _STRANGERS.items():
        if head.lstrip().startswith(start):
            return text
    return "its format is not known; torch, safetensors, npz and npy files are read"
