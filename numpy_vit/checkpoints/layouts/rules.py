"""Rules that turn tensors of another layout into ours, and back: rename, permute, reshape, split, fuse.

A rule names keys on both sides; "{i}" stands for a block's index.  Both of its functions only move numbers, so
`pack` undoes `unpack` bit for bit; the few that add a constant (a zero bias) or a sum (a class token that absorbs
its position row) say so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np

from numpy_vit.tree import Array

Tensors: TypeAlias = Mapping[str, Array]


class Geometry(Protocol):
    """What a rule has to know beyond shapes; every model's Config knows it."""

    @property
    def patch(self) -> tuple[int, int]: ...

    @property
    def in_chans(self) -> int: ...

    @property
    def num_heads(self) -> int: ...


Move: TypeAlias = Callable[[Sequence[Array], Geometry], Sequence[Array]]


@dataclass(frozen=True)
class Rule:
    """Our keys, their keys, and how the arrays of one side become those of the other."""

    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    unpack: Move
    pack: Move


def one(ours: str, theirs: str, unpack: Callable[[Array], Array], pack: Callable[[Array], Array]) -> Rule:
    """Return the rule for one array on either side."""
    return Rule((ours,), (theirs,), lambda a, _: [unpack(a[0])], lambda a, _: [pack(a[0])])


def rename(ours: str, theirs: str) -> Rule:
    """The same array under another name."""
    return one(ours, theirs, lambda a: a, lambda a: a)


def layer(ours: str, theirs: str) -> list[Rule]:
    """Rename weight and bias of a layer, of whichever the file has."""
    return [rename(f"{ours}.{part}", f"{theirs}.{part}") for part in ("weight", "bias")]


def transposed(ours: str, theirs: str) -> Rule:
    """A matrix that the other side stores the other way round."""
    return one(ours, theirs, lambda a: a.T, lambda a: a.T)


def token(ours: str, theirs: str) -> Rule:
    """One token: (1, 1, D) here, (D,) there."""
    return one(ours, theirs, lambda a: a.reshape(1, 1, -1), lambda a: a.reshape(-1))


def batched(ours: str, theirs: str) -> Rule:
    """A table or a row of tokens: (1, R, D) here, (R, D) there."""
    return one(ours, theirs, lambda a: a[None], lambda a: a[0])


def fused(ours: str, theirs: Sequence[str]) -> Rule:
    """Arrays of the same size, one below the other here, apart there: q, k and v."""
    count = len(theirs)
    return Rule((ours,), tuple(theirs), lambda a, _: [np.concatenate(a)], lambda a, _: np.split(a[0], count))


def fused_layer(ours: str, theirs: Sequence[str]) -> list[Rule]:
    """`fused` for the weights and the biases of layers."""
    return [fused(f"{ours}.{part}", [f"{name}.{part}" for name in theirs]) for part in ("weight", "bias")]


def query_and_rest(query: str, rest: str, theirs: str) -> Rule:
    """A fused array there, its first third and its other two apart here: the attention pool's q and kv."""

    def unpack(arrays: Sequence[Array], _: Geometry) -> list[Array]:
        third = len(arrays[0]) // 3
        return [arrays[0][:third], arrays[0][third:]]

    return Rule((query, rest), (theirs,), unpack, lambda a, _: [np.concatenate(a)])


def multihead(ours: str, theirs: str) -> list[Rule]:
    """torch.nn.MultiheadAttention: in_proj_weight is qkv.weight, out_proj is proj."""
    return [
        rename(f"{ours}.qkv.weight", f"{theirs}.in_proj_weight"),
        rename(f"{ours}.qkv.bias", f"{theirs}.in_proj_bias"),
        *layer(f"{ours}.proj", f"{theirs}.out_proj"),
    ]


def patches_channel_first(theirs: str) -> Rule:
    """The patch projection as a matrix on (channel, row, column) vectors, which is a convolution's order."""
    return Rule(
        ("patch_embed.proj.weight",),
        (theirs,),
        lambda a, g: [a[0].reshape(len(a[0]), g.in_chans, *g.patch)],
        lambda a, _: [a[0].reshape(len(a[0]), -1)],
    )


def patches_channel_last(theirs: str) -> Rule:
    """The patch projection as a matrix on (row, column, channel) vectors."""
    return Rule(
        ("patch_embed.proj.weight",),
        (theirs,),
        lambda a, g: [a[0].reshape(len(a[0]), *g.patch, g.in_chans).transpose(0, 3, 1, 2)],
        lambda a, _: [a[0].transpose(0, 2, 3, 1).reshape(len(a[0]), -1)],
    )


def vector_channel_last(ours: str, theirs: str) -> Rule:
    """A vector over the entries of a patch: (channel, row, column) here, (row, column, channel) there."""
    return Rule(
        (ours,),
        (theirs,),
        lambda a, g: [a[0].reshape(*g.patch, g.in_chans).transpose(2, 0, 1).reshape(-1)],
        lambda a, g: [a[0].reshape(g.in_chans, *g.patch).transpose(1, 2, 0).reshape(-1)],
    )


def with_zero_bias(ours: str, weight: str, transpose: bool = False) -> Rule:
    """A layer that has no bias there and has one here: zeros, which `pack` leaves out."""

    def turned(a: Array) -> Array:
        return a.T if transpose else a

    return Rule(
        (f"{ours}.weight", f"{ours}.bias"),
        (weight,),
        lambda a, _: [turned(a[0]), np.zeros(turned(a[0]).shape[0], a[0].dtype)],
        lambda a, _: [turned(a[0])],
    )


def absorbed(cls_token: str, positions: str) -> Rule:
    """A table whose first row belongs to the class token alone, where other prefix tokens have no row.

    Here the class token absorbs its row and the table begins at the patches.  `pack` writes a row of zeros: another
    table, the same function.
    """

    def unpack(arrays: Sequence[Array], _: Geometry) -> list[Array]:
        token, table = arrays
        return [token + table[:, :1], table[:, 1:]]

    def pack(arrays: Sequence[Array], _: Geometry) -> list[Array]:
        token, table = arrays
        return [token, np.concatenate([np.zeros_like(table[:, :1]), table], axis=1)]

    return Rule(("cls_token", "pos_embed"), (cls_token, positions), unpack, pack)
