"""Parameter groups: which slices of one flat buffer decay, and how fast each of them learns."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from numpy_vit.training.shards import in_order
from numpy_vit.tree import Array, Params, flatten

# Learned inputs: they are added to or joined to the tokens and multiply nothing, so pulling them to zero is
# no regularisation.  The first four are timm's; the last two are the same kind of array.
NO_DECAY = ("cls_token", "reg_token", "dist_token", "pos_embed", "mask_token", "attn_pool.latent")
STEM = ("cls_token", "reg_token", "dist_token", "pos_embed", "mask_token", "patch_embed", "norm_pre")

_PIECE = 1 << 17  # entries: parameters, gradients and two moments are 2 MB of float32, a second-level cache


@dataclass(frozen=True)
class Group:
    """The entries [start, stop) of a flat buffer, which share a decay and a multiple of the learning rate."""

    name: str
    start: int
    stop: int
    weight_decay: float
    lr_scale: float


def decays(key: str, array: Array) -> bool:
    """Say whether weight decay applies: not to biases, norms, layer scales (ndim ≤ 1), nor to `NO_DECAY`."""
    return array.ndim > 1 and not any(key == name or key.endswith("." + name) for name in NO_DECAY)


def layer_of(key: str, depth: int) -> int:
    """Return the layer a parameter counts to: 0 for the stem, i + 1 for block i, depth + 1 for what follows.

    The stem is the patch embedding, the learned inputs and the norm before the blocks.  The final norm counts
    to what follows, as in BEiT and MAE; timm counts it to the last block.

    Raises
    ------
    ValueError : a block beyond `depth`.
    """
    if key.split(".")[0] in STEM:
        return 0
    block = re.match(r"blocks\.(\d+)\.", key)
    if block is None:
        return depth + 1
    index = int(block[1])
    if index >= depth:
        raise ValueError(f"{key!r} is in block {index}, the depth is {depth}")
    return index + 1


def parameter_groups(
    params: Params,
    weight_decay: float,
    layer_decay: float | None = None,
    depth: int | None = None,
    frozen: Collection[str] = (),
) -> tuple[list[str], list[Group]]:
    """Sort the parameters so that each group is one slice of `tree.pack(params, order)`.

    Parameters
    ----------
    params : tree of arrays with timm's names.
    weight_decay : the decay of the arrays that have one (`decays`); the others get 0.
    layer_decay : layer l (`layer_of`) learns at layer_decay**(depth + 1 - l) of the rate; None: all at 1.
    depth : number of blocks; None counts them in `params`.
    frozen : keys of parameters that do not learn.

    Returns
    -------
    order : the keys of `flatten(params)`, by group and in tree order within a group; those that are frozen come last.
    groups : in the order of the buffer, which they tile up to what is frozen; groups without an array are left out.

    Raises
    ------
    ValueError : a decay out of range; a layer decay without blocks, or a block beyond `depth`.

    Source: Bao, Dong, Piao & Wei (2022), "BEiT", for ViTs; Clark et al. (2020), "ELECTRA".
    """
    if not weight_decay >= 0.0:
        raise ValueError(f"weight_decay is {weight_decay}, it must not be negative")
    if layer_decay is not None and not 0.0 < layer_decay <= 1.0:
        raise ValueError(f"layer_decay is {layer_decay}, it must lie in (0, 1]")
    flat = flatten(params)
    members: dict[tuple[int, bool], list[str]] = {}  # (layer, without decay) -> keys
    if layer_decay is None:
        depth = 0
    elif depth is None:
        depth = _count_blocks(flat)
    for key, array in flat.items():
        if key in frozen:
            continue
        layer = 0 if layer_decay is None else layer_of(key, depth)
        members.setdefault((layer, not decays(key, array)), []).append(key)

    order: list[str] = []
    groups: list[Group] = []
    start = 0
    for (layer, without), keys in sorted(members.items()):
        stop = start + sum(flat[key].size for key in keys)
        kind = "no_decay" if without else "decay"
        groups.append(
            Group(
                name=kind if layer_decay is None else f"layer{layer}.{kind}",
                start=start,
                stop=stop,
                weight_decay=0.0 if without else weight_decay,
                lr_scale=1.0 if layer_decay is None else layer_decay ** (depth + 1 - layer),
            )
        )
        order += keys
        start = stop
    return [*order, *(key for key in flat if key in frozen)], groups


def apply(
    update: Callable[..., None],
    params: Array,
    grads: Array,
    state: dict[str, Array],
    groups: Sequence[Group],
    lr: float,
    workers: int = 1,
    **hyper: Any,
) -> None:
    """Make one step of an optimizer in place, each group with its own decay and rate.

    An optimizer treats every entry by itself, so the buffer is worked on in pieces that stay in the processor's cache,
    and threads can share them: the result is the same to the last bit.

    Parameters
    ----------
    update : `sgd.update`, `adam.update` or `adamw.update`.
    params, grads : (n,), packed in the groups' order; `params` is changed.
    state : of the optimizer's `init` on the whole buffer, changed in place: the step count rises by one.
    groups : of `parameter_groups`; they must tile the buffer.
    lr : the rate; group g steps with lr·g.lr_scale.
    workers : threads.
    hyper : what else `update` takes, the same for all groups.

    Raises
    ------
    ValueError : the groups leave entries out, overlap or end elsewhere than the buffer; and as `update`.
    """
    bounds = [0, *(group.stop for group in groups)]
    if [group.start for group in groups] != bounds[:-1] or bounds[-1] != params.size:
        slices = [(group.start, group.stop) for group in groups]
        raise ValueError(f"the groups {slices} do not tile {params.size} parameters")
    before = np.array(state["step"])
    pieces = [
        (group, slice(start, min(start + _PIECE, group.stop)))
        for group in groups
        for start in range(group.start, group.stop, _PIECE)
    ]

    def run(number: int) -> Array:
        group, part = pieces[number]
        own = {name: array[part] for name, array in state.items() if name != "step"}
        own["step"] = before.copy()  # a counter of its own: every piece makes the same step
        update(params[part], grads[part], own, lr * group.lr_scale, weight_decay=group.weight_decay, **hyper)
        return own["step"]

    for after in in_order(run, len(pieces), workers):
        state["step"][...] = after


def _count_blocks(flat: dict[str, Array]) -> int:
    depth = len({key.split(".")[1] for key in flat if key.startswith("blocks.")})
    if depth == 0:
        raise ValueError("layer_decay needs parameters named 'blocks.0...', there are none")
    return depth
