"""torch.save's two containers, the zip archive (1.6 and later, TorchScript too) and the five pickles before it.

    zip:     NAME/data.pkl, NAME/data/0, NAME/data/1, ..., NAME/byteorder
    legacy:  pickles of a magic number, 1001, the writer's sizes, the object, the storages' keys;
             then for each key an int64 count and the items

Source: pytorch, torch/serialization.py and caffe2/serialize/inline_container.h.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

from numpy_vit.checkpoints import pickled_arrays, strided, zips
from numpy_vit.checkpoints.opcodes import load
from numpy_vit.checkpoints.pickled_paths import leaves
from numpy_vit.checkpoints.pickled_tensors import UNREADABLE, Storage, Tensor, call, persistent
from numpy_vit.checkpoints.pickles import MAX_BYTES, Machine, Record
from numpy_vit.checkpoints.sources import BrokenFileError, Budget, Source
from numpy_vit.checkpoints.strided import Place
from numpy_vit.tree import Array

MAGIC = 0x1950A86A20F9469CFC6C
_PROTOCOL = 1001


def root_of(names: list[str]) -> str | None:
    """Return what stands before "data.pkl" in the names of an archive's members, or None if it is not torch's."""
    roots = [name.removesuffix("data.pkl") for name in names if name.rpartition("/")[2] == "data.pkl"]
    return min(roots, key=lambda root: root.count("/"), default=None)


def read_zip(source: Source, members: dict[str, zips.Member], root: str) -> dict[str, Array]:
    """Read the tensors of a torch.save or torch.jit.save archive whose members' names begin with `root`."""
    pickle = _stored(members[f"{root}data.pkl"])
    if pickle.size > MAX_BYTES:
        raise BrokenFileError(f"its data.pkl has {pickle.size} bytes, at most {MAX_BYTES} are allowed")
    zips.check(source, pickle)
    swapped = _big_endian(source, members.get(f"{root}byteorder"))
    machine = Machine(io.BytesIO(source.read(pickle.start, pickle.size)), pickle.size, call, persistent)
    checked: set[str] = set()

    def place(storage: Storage) -> Place:
        name = f"{root}data/{storage.key}"
        if name not in members:
            raise BrokenFileError(f"its storage {storage.key!r:.40} is missing")
        member = _stored(members[name])
        if name not in checked:
            zips.check(source, member)
            checked.add(name)
        return Place(member.start, member.size, swapped)

    return _tensors(source, load(machine), place)


def _stored(member: zips.Member) -> zips.Member:
    if member.method != zips.STORED:
        raise BrokenFileError(f"{member.name!r:.100} is compressed, which torch never does; repack the archive without")
    return member


def _big_endian(source: Source, member: zips.Member | None) -> bool:
    if member is None:  # before 2.1
        return False
    order = source.read(member.start, min(_stored(member).size, 16))
    if order not in (b"little", b"big"):
        raise BrokenFileError(f"its byte order is {order!r}, neither little nor big")
    return order == b"big"


def read_legacy(source: Source) -> dict[str, Array]:
    """Read the tensors of a file that torch 1.5 or older wrote."""
    storages: dict[str, Storage] = {}

    def remember(identity: Any) -> Any:
        value = persistent(identity)
        if isinstance(value, Storage):
            storages.setdefault(value.key, value)
        return value

    source.file.seek(0)
    machine = Machine(source.file, source.size, call, remember)
    if load(machine) != MAGIC:
        raise BrokenFileError("it is a pickle that torch.save did not write")
    version = load(machine)
    if type(version) is not int or version != _PROTOCOL:
        raise BrokenFileError(f"its protocol is {str(version)[:20] if type(version) is int else '?'}, not {_PROTOCOL}")
    load(machine)  # the writer's byte order and sizes; the storages are little-endian all the same
    root = load(machine)
    places = _legacy_places(source, load(machine), storages)

    def place(storage: Storage) -> Place:
        if storage.key not in places:
            raise BrokenFileError(f"its storage {storage.key!r:.40} is missing")
        return places[storage.key]

    return _tensors(source, root, place)


def _legacy_places(source: Source, keys: Any, storages: dict[str, Storage]) -> dict[str, Place]:
    if not isinstance(keys, list):
        raise BrokenFileError("it has no list of its storages")
    places: dict[str, Place] = {}
    position = source.file.tell()
    for key in keys:
        if not isinstance(key, str) or key not in storages or key in places:
            raise BrokenFileError("its list of storages does not fit its pickle")
        storage = storages[key]
        count = int.from_bytes(source.read(position, 8), "little")
        if count != storage.numel:
            raise BrokenFileError(f"its storage {key!r:.40} has {count} items instead of {storage.numel}")
        size = count * strided.item_size(storage)
        if position + 8 + size > source.size:
            raise BrokenFileError(f"its storage {key!r:.40} is cut off")
        places[key] = Place(position + 8, size, False)
        position += 8 + size
    return places


def _is_leaf(value: Any) -> bool:
    if isinstance(value, Record):
        return value.name in UNREADABLE or pickled_arrays.is_array(value)
    return isinstance(value, Tensor)


def _tensors(source: Source, root: Any, place: Callable[[Storage], Place]) -> dict[str, Array]:
    """Read every tensor and NumPy array of a pickled object; one that occurs twice is one array."""
    result: dict[str, Array] = {}
    read: dict[tuple[Any, ...], Array] = {}
    paths = Budget((8 << 20) + 4 * source.size, "the paths of its tensors take")
    # The factor: fp8 that becomes float32, and as much again for views of it.
    memory = Budget((16 << 20) + 8 * source.size, "its tensors take")
    for path, leaf in leaves(root, _is_leaf, paths):
        if isinstance(leaf, Record) and leaf.name in UNREADABLE:
            raise BrokenFileError(f"tensor {path!r:.100} is {UNREADABLE[leaf.name]}; save it as an ordinary one")
        key = _identity(leaf)
        if key not in read:
            try:
                if isinstance(leaf, Record):
                    read[key] = pickled_arrays.read(leaf, memory)
                else:
                    read[key] = strided.read(source, leaf, place(leaf.storage), memory)
            except BrokenFileError as fault:
                raise BrokenFileError(f"tensor {path!r:.100}: {fault}") from None
        result[path] = read[key]
    return result


def _identity(leaf: Any) -> tuple[Any, ...]:
    """Return what two tensors have in common if they are the same view of the same storage."""
    if isinstance(leaf, Record):
        return (id(leaf),)
    storage = leaf.storage
    where = (storage.kind, storage.key, storage.numel, storage.first, storage.count)
    return (*where, leaf.offset, leaf.size, leaf.stride, leaf.dtype, leaf.flags)
