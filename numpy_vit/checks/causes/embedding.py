"""What ports do differently about patches and positions."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from numpy_vit.checkpoints.resize import RESIZES, Resize, positions
from numpy_vit.checks.causes.alternative import Alternative
from numpy_vit.checks.edits import dropping, rearranged, without
from numpy_vit.checks.port import Change, Flat, Port, StoredPositions
from numpy_vit.tree import Array

_PATCH = r"patch_embed\.proj\.weight"


def embedding(port: Port) -> Iterator[Alternative]:
    """Yield other patch vectors, channels and positions."""
    yield from _patches(port)
    if "pos_embed" in port.params:
        yield from _positions(port)
    if port.stored is not None:
        yield from _resized(port, port.stored)


def _patches(port: Port) -> Iterator[Alternative]:
    weight = port.params["patch_embed.proj.weight"]
    _, C, py, px = weight.shape
    orders = {
        "patch order (row, col, c)": (
            lambda w: w.reshape(-1, py, px, C).transpose(0, 3, 1, 2),
            "the reference flattens patches as (row, col, c), the weight is meant for (c, row, col)",
        ),
        "patch order (c, row, col)": (
            lambda w: w.transpose(0, 2, 3, 1).reshape(w.shape),
            "the reference reads the weight, sorted into (row, col, c), as (c, row, col)",
        ),
        "patch rows and columns swapped": (
            lambda w: w.reshape(-1, C, px, py).swapaxes(2, 3),
            "the reference has the patch's rows and columns exchanged",
        ),
        "patch order (col, row, c)": (
            lambda w: w.reshape(-1, px, py, C).transpose(0, 3, 2, 1),
            "the reference flattens patches as (col, row, c), the weight is meant for (c, row, col)",
        ),
        "RGB and BGR": (lambda w: w[:, ::-1], "the reference sees the channels in the opposite order, BGR for RGB"),
    }
    for name, (order, says) in orders.items():
        yield Alternative(name, _with(name), says, rearranged(_PATCH, order))
    if port.images.shape[2] == port.images.shape[3] and py == px:
        yield Alternative(
            "image transposed", "the image transposed", "the reference sees images with rows and columns exchanged",
            Change(images=lambda images: images.swapaxes(2, 3), gradients=_turned),
        )  # fmt: skip


def _with(name: str) -> str:
    return name.replace("patch order", "patches flattened as").replace("RGB and BGR", "the channels reversed")


def _turned(flat: Flat) -> Flat:
    return {key: leaf.swapaxes(2, 3) if key == "images" else leaf for key, leaf in flat.items()}


def _positions(port: Port) -> Iterator[Alternative]:
    prefix = 0 if port.config.no_embed_class else port.config.num_prefix_tokens
    rows, columns = port.config.grid
    says = "the reference adds no positions"
    yield Alternative("positions missing", "no positions", says, without("pos_embed"))
    if prefix:
        yield Alternative(
            "class position last", "the class token's position row put last",
            "the reference takes the last position row for the class token, the first is meant",
            rearranged("pos_embed", partial(np.roll, shift=1, axis=-2)),
        )  # fmt: skip
        yield Alternative(
            "class position first", "the first position row moved behind the patches'",
            "the reference's table has the class token's row first, ours is read as having it last",
            rearranged("pos_embed", partial(np.roll, shift=-1, axis=-2)),
        )  # fmt: skip
        yield Alternative(
            "class position missing", "no position row for the prefix tokens",
            "the reference adds positions to the patches only", _prefixless(prefix),
        )  # fmt: skip

    def transposed(table: Array) -> Array:
        if table.ndim < 3:  # the last axis alone
            return table
        patches = table[:, prefix:].reshape(1, columns, rows, -1).swapaxes(1, 2).reshape(1, rows * columns, -1)
        return np.concatenate([table[:, :prefix], patches], axis=1)

    yield Alternative(
        "positions transposed", "the grid of positions transposed",
        "the reference has rows and columns of the position table exchanged", rearranged("pos_embed", transposed),
    )  # fmt: skip


def _resized(port: Port, stored: StoredPositions) -> Iterator[Alternative]:
    """Yield the other rules by which libraries resize the stored table to this image."""
    for name, how in RESIZES.items():
        table = positions(stored.table, stored.prefix, stored.grid, port.config.grid, how)
        yield Alternative(
            f"positions resized as {name}", f"positions resized as {name}",
            f"the reference resizes positions as {name} does: {_rule(how)}",
            Change(params=partial(_with_table, table=table), gradients=dropping("pos_embed")),
        )  # fmt: skip


def _with_table(flat: Flat, table: Array) -> Flat:
    return flat | {"pos_embed": table}


def _rule(how: Resize) -> str:
    extras = {"antialiased": how.antialias, "with aligned corners": how.align_corners, f"+{how.offset}": how.offset}
    return ", ".join([how.kernel, *(words for words, on in extras.items() if on)])


def _prefixless(prefix: int) -> Change:
    def cut(flat: Flat) -> Flat:
        table = flat["pos_embed"].copy()
        table[:, :prefix] = 0
        return flat | {"pos_embed": table}

    return Change(params=cut, gradients=lambda flat: cut(flat) if "pos_embed" in flat else flat)
