"""What the names of a torch pickle mean: the closed table from records to tensors that are not yet read.

Whatever is not in the table stays an inert `Record`.  Source of the argument orders: pytorch, torch/_utils.py,
torch/_tensor.py, torch/serialization.py, torch/csrc/jit/serialization/pickler.cpp.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from numpy_vit.checkpoints.pickles import Name, Record
from numpy_vit.checkpoints.sources import BrokenFileError


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Storage:
    """A row of bytes that lies elsewhere in the file, under a key.

    `kind` is the class, "FloatStorage"; `numel` counts the items of the whole; `first` and `count` are the part
    that very old files call a view.
    """

    kind: str
    key: str
    numel: int
    first: int
    count: int


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Tensor:
    """A strided view of a storage, in items of `dtype` (None: the storage's own), as the file claims it."""

    takes_state: ClassVar[bool] = True  # the Python attributes of a Parameter: of no use here

    storage: Storage
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str | None
    flags: tuple[str, ...]  # "conj", "neg": lazy operations that the bytes have not undergone


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Encoded:
    """Bytes that protocol 2 stores as a text, each byte one character."""

    text: str


# Tensors that are no strided views of a storage; whoever reaches one says its key.
UNREADABLE = {
    "torch._utils._rebuild_sparse_tensor": "sparse",
    "torch._utils._rebuild_sparse_csr_tensor": "sparse",
    "torch._utils._rebuild_qtensor": "quantised",
    "torch._utils._rebuild_nested_tensor": "nested",
    "torch._utils._rebuild_wrapper_subclass": "of a class that wraps another tensor",
    "torch._utils._rebuild_meta_tensor_no_storage": "on the meta device, without values",
}


def call(name: str, args: tuple[Any, ...]) -> Any:
    """Return what a call in the pickle stands for."""
    name = _modern(name)
    builder = _BUILDERS.get(name)
    return Record(name, args) if builder is None else builder(args)


def persistent(identity: Any) -> Any:
    """Return the storage (or the class of a module) that a persistent id means."""
    if isinstance(identity, tuple) and len(identity) >= 2 and identity[0] == "module":
        return identity[1]  # the rest is its source, which concerns nobody
    if not isinstance(identity, tuple) or len(identity) not in (5, 6) or identity[0] != "storage":
        raise BrokenFileError("its pickle has a persistent id that is not a storage")
    _, kind, key, _, numel, *view = identity
    if not isinstance(kind, Name) or not isinstance(key, str) or not _natural(numel):
        raise BrokenFileError("its pickle describes a storage wrongly")
    first, count = 0, numel
    if view and view[0] is not None:
        if not isinstance(view[0], tuple) or len(view[0]) != 3 or not all(_natural(n) for n in view[0][1:]):
            raise BrokenFileError("its pickle describes a view of a storage wrongly")
        _, first, count = view[0]
        if first + count > numel:
            raise BrokenFileError(f"storage {key!r:.40} has a view beyond its {numel} items")
    return Storage(kind.text.rpartition(".")[2], key, numel, first, count)


def _modern(name: str) -> str:
    for old, new in (
        ("__builtin__.", "builtins."),
        ("torch.tensor._", "torch._tensor._"),
        ("numpy._core.", "numpy.core."),
    ):
        if name.startswith(old):
            return new + name[len(old) :]
    return name


def _natural(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63  # no bool, and what int64 holds


def _naturals(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and len(value) <= 64 and all(_natural(n) for n in value)


def _tensor(args: tuple[Any, ...], dtype: str | None = None, metadata: Any = None) -> Tensor:
    if len(args) < 4:
        raise BrokenFileError("its pickle describes a tensor wrongly")
    storage, offset, size, stride = args[:4]
    if not isinstance(storage, Storage):
        raise BrokenFileError("its pickle has a tensor whose storage is not in the file")
    if not _natural(offset) or not _naturals(size) or not _naturals(stride) or len(size) != len(stride):
        raise BrokenFileError(
            f"its pickle has a tensor with an impossible offset, size or stride over storage {storage.key!r:.40}"
        )
    return Tensor(storage, offset, tuple(size), tuple(stride), dtype, _flags(metadata))


def _flags(metadata: Any) -> tuple[str, ...]:
    if metadata is None:
        return ()
    if not isinstance(metadata, Record):
        raise BrokenFileError("its pickle describes a tensor wrongly")
    flags = [key for key, value in metadata.pairs if value]
    if not all(isinstance(flag, str) and flag in ("conj", "neg") for flag in flags):
        raise BrokenFileError("it has a tensor with flags other than conj and neg")
    return tuple(sorted(set(flags)))


def _rebuild_v2(args: tuple[Any, ...]) -> Tensor:
    return _tensor(args, metadata=args[6] if len(args) > 6 else None)


def _rebuild_v3(args: tuple[Any, ...]) -> Tensor:
    if len(args) < 7 or not isinstance(args[6], Name):
        raise BrokenFileError("its pickle describes a tensor wrongly")
    return _tensor(args, args[6].text.removeprefix("torch."), args[7] if len(args) > 7 else None)


def _rebuild_from_type(args: tuple[Any, ...]) -> Any:
    if len(args) < 3 or not isinstance(args[0], Name) or not isinstance(args[2], tuple):
        raise BrokenFileError("its pickle describes a tensor wrongly")
    name = _modern(args[0].text)
    if _BUILDERS.get(name) is _rebuild_from_type:  # or else this could recurse without end
        raise BrokenFileError("its pickle describes a tensor wrongly")
    return call(name, args[2])


def _first(name: str) -> Callable[[tuple[Any, ...]], Any]:
    """Return a builder that lets the first argument stand for the whole, if it can be a tensor or a container."""

    def build(args: tuple[Any, ...]) -> Any:
        return args[0] if args and isinstance(args[0], (Tensor, Record, list, tuple)) else Record(name, args)

    return build


def _container(name: str) -> Callable[[tuple[Any, ...]], Any]:
    def build(args: tuple[Any, ...]) -> Any:
        if not args:
            return []
        return list(args[0]) if len(args) == 1 and isinstance(args[0], (list, tuple)) else Record(name, args)

    return build


def _dict(args: tuple[Any, ...]) -> Record:
    """An OrderedDict; Python 2 wrote it with the list of its pairs."""
    if not args:
        return Record("dict")
    if len(args) != 1 or not isinstance(args[0], list):
        return Record("collections.OrderedDict", args)
    if not all(isinstance(pair, (list, tuple)) and len(pair) == 2 for pair in args[0]):
        raise BrokenFileError("its pickle makes a dict of something else than pairs")
    return Record("dict", (), [(key, value) for key, value in args[0]])


def _encode(args: tuple[Any, ...]) -> Any:
    if len(args) == 2 and isinstance(args[0], str) and args[1] in ("latin1", "latin-1"):
        return Encoded(args[0])
    return Record("_codecs.encode", args)


_BUILDERS: dict[str, Callable[[tuple[Any, ...]], Any]] = {
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _rebuild_v2,
    "torch._utils._rebuild_tensor_v3": _rebuild_v3,
    "torch._tensor._rebuild_from_type": _rebuild_from_type,
    "torch._tensor._rebuild_from_type_v2": _rebuild_from_type,
    "collections.OrderedDict": _dict,
    "collections.defaultdict": lambda args: Record("dict"),  # its argument is only the factory
    "builtins.dict": _dict,
    "_codecs.encode": _encode,
    "torch.Size": _first("torch.Size"),
    **{f"builtins.{name}": _container(name) for name in ("list", "tuple", "set", "frozenset")},
    **{
        name: _first(name)
        for name in (
            "torch._utils._rebuild_parameter",
            "torch._utils._rebuild_parameter_with_state",
            "torch._utils._rebuild_device_tensor_from_numpy",
            "torch._utils._rebuild_device_tensor_from_cpu_tensor",
            "torch._utils._rebuild_xla_tensor",
            "torch.nn.parameter.Parameter",
            "torch.nn.parameter.Buffer",
            "torch.autograd.variable.Variable",
            "torch.jit._pickle.restore_type_tag",
            "torch.jit._pickle.build_tensorlist",
            "torch.jit._pickle.build_intlist",
        )
    },
}
