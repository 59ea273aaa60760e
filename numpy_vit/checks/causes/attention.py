"""What ports do differently about attention: heads, the order of qkv's rows, scale, transposes."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from functools import partial

import numpy as np

from numpy_vit.checks.causes.alternative import Alternative
from numpy_vit.checks.edits import matching, rearranged, scaled
from numpy_vit.checks.port import Change, Port
from numpy_vit.tree import Array


def attention(port: Port, block: str) -> Iterator[Alternative]:
    """Yield other readings of the attention's weights.

    Parameters
    ----------
    block : a regular expression for the indices of the blocks that differ
    """
    if not matching(rf"blocks\.({block})\.attn\.qkv\.weight", port.params):
        return
    yield from _heads(port, block)
    yield from _orders(port, block)
    yield from _scales(port, block)
    yield from _transposes(port, block)
    yield from _merges(port, block)


def _heads(port: Port, block: str) -> Iterator[Alternative]:
    if block != r"\d+" or any(".q_norm." in key for key in port.params):
        return  # the norms' width is that of a head
    now, width = port.config.num_heads, _width(port)
    for heads in range(1, width + 1):
        if width % heads == 0 and heads != now:
            says = f"the reference has {heads} attention heads, not {now}"
            fields = {"num_heads": heads} | ({"head_dim": width // heads} if port.config.head_dim else {})
            yield Alternative(f"{heads} heads", f"num_heads={heads}", says, Change(config=fields))


def _width(port: Port) -> int:
    """The width of all heads together, D as a rule."""
    return next(len(leaf) for key, leaf in port.params.items() if key.endswith(".attn.qkv.weight")) // 3


def _orders(port: Port, block: str) -> Iterator[Alternative]:
    """Rows of qkv: read in another order behind qkv, or, visible in qkv's own output, stored in another order."""
    H = port.config.num_heads
    keys, output = rf"blocks\.({block})\.attn\.qkv\.(weight|bias)", rf"blocks\.({block})\.attn\.qkv"
    for order in list(itertools.permutations(range(3)))[1:]:
        names = " ".join("qkv"[i] for i in order)
        # the port takes its first third for names[0]: our q comes from where it has "q"
        swap = partial(_thirds, order=tuple(np.argsort(order)))
        says = f"the reference takes the thirds of qkv for {names.replace(' ', ', ')}, which are q, k, v"
        yield Alternative(f"qkv order {names}", f"qkv read as {names}", says, rearranged(keys, swap, output))
        yield Alternative(
            f"qkv stored {names}", f"qkv's rows moved to the order {names}",
            f"the reference's qkv weight holds {names.replace(' ', ', ')} where q, k, v are meant",
            rearranged(keys, partial(_thirds, order=order)),
        )  # fmt: skip
    d = _width(port) // H
    groups = {
        "(heads, 3, d)": ((H, 3, d), (1, 0, 2)),
        "(heads, d, 3)": ((H, d, 3), (2, 0, 1)),
        "(3, d, heads)": ((3, d, H), (0, 2, 1)),
        "(d, heads, 3)": ((d, H, 3), (2, 1, 0)),
    }
    for inner, (shape, axes) in groups.items():
        regroup = partial(_regrouped, shape=shape, axes=axes)
        says = f"the reference reads the rows of qkv as {inner}, which are (3, heads, d)"
        yield Alternative(f"qkv interleaved {inner}", f"qkv read as {inner}", says, rearranged(keys, regroup, output))
        says = f"the reference's weight has the rows of qkv taken for {inner} and sorted into (3, heads, d)"
        yield Alternative(f"qkv sorted {inner}", f"qkv's rows sorted from {inner}", says, rearranged(keys, regroup))


def _thirds(leaf: Array, order: tuple[int, ...]) -> Array:
    return leaf.reshape(3, -1, *leaf.shape[1:])[list(order)].reshape(leaf.shape)


def _regrouped(leaf: Array, shape: tuple[int, ...], axes: tuple[int, ...]) -> Array:
    grouped = leaf.reshape(*shape, *leaf.shape[1:])
    rows: Array = grouped.transpose(*axes, *range(3, grouped.ndim)).reshape(leaf.shape)
    return rows


def _scales(port: Port, block: str) -> Iterator[Alternative]:
    D, d = port.config.embed_dim, _width(port) // port.config.num_heads
    normed = any(".q_norm." in key for key in port.params)
    part = "q_norm" if normed else "qkv"
    keys = rf"blocks\.({block})\.attn\.{part}\.(weight|bias)"
    output = rf"blocks\.({block})\.attn\.{part}"
    for name, scale in (("D^-0.5", D**-0.5), ("1, none", 1.0), ("d^-1", 1 / d), ("D^-1", 1 / D)):
        factor = partial(_queries, times=scale * math.sqrt(d), everything=normed)
        says = f"the reference scales the scores by {name}, not by d^-0.5 with d = {d} of a head"
        if not math.isclose(scale * math.sqrt(d), 1.0):
            yield Alternative(f"scale {name}", f"a scale of {name}", says, scaled(keys, factor, output))


def _queries(leaf: Array, times: float, everything: bool) -> Array:
    factor = np.ones(leaf.shape, leaf.dtype)
    factor[: len(leaf) if everything else len(leaf) // 3] = times
    return factor


def _transposes(port: Port, block: str) -> Iterator[Alternative]:
    says = "the reference's {} is transposed: square, so that no shape shows it"
    for part in ("attn.proj", "mlp.fc1", "mlp.fc2"):
        keys = rf"blocks\.({block})\.{re.escape(part)}\.weight"
        if any(port.params[key].shape[0] == port.params[key].shape[1] for key in matching(keys, port.params)):
            yield Alternative(
                f"{part} transposed", f"{part}.weight transposed", says.format(f"{part}.weight"),
                rearranged(keys, lambda leaf: leaf.T),
            )  # fmt: skip
    keys = rf"blocks\.({block})\.attn\.qkv\.weight"
    yield Alternative(
        "q k v transposed", "q, k and v transposed", says.format("weight of q, k and v each"),
        rearranged(keys, lambda leaf: leaf.reshape(3, -1, leaf.shape[1]).swapaxes(1, 2).reshape(leaf.shape)),
    )  # fmt: skip


def _merges(port: Port, block: str) -> Iterator[Alternative]:
    H = port.config.num_heads

    def merged(leaf: Array) -> Array:
        columns: Array = leaf.reshape(len(leaf), -1, H).swapaxes(1, 2).reshape(leaf.shape)
        return columns

    yield Alternative(
        "heads merged (d, heads)", "heads merged as (d, heads)",
        "the reference puts the heads together as (d, heads), where (heads, d) is meant",
        rearranged(rf"blocks\.({block})\.attn\.proj\.weight", merged),
    )  # fmt: skip
