"""Parameter groups: which slices of one flat buffer decay, and how fast each of them learns."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator, Sequence
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
    """The entries [start, stop) of a flat buffer, which share a decay and a multiple of the learning rate.

    `matrices` are the shapes of the matrices that tile it, where the optimizer steps each as a whole.
    """

    name: str
    start: int
    stop: int
    weight_decay: float
    lr_scale: float
    matrices: tuple[tuple[int, ...], ...] = ()


def decays(key: str, array: Array) -> bool:
    """Say whether weight decay applies: not to biases, norms, layer scales (ndim ≤ 1), nor to `NO_DECAY`."""
    return array.ndim > 1 and not any(key == name or key.endswith("." + name) for name in NO_DECAY)


def nothing(key: str, array: Array) -> bool:
    """Say of every parameter that it is not stepped as a whole: as it is for all optimizers but Muon."""
    return False


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
    whole: Callable[[str, Array], bool] = nothing,
) -> tuple[list[str], list[Group]]:
    """Sort the parameters so that each group is one slice of `tree.pack(params, order)`.

    Parameters
    ----------
    params : tree of arrays with timm's names.
    weight_decay : the decay of the arrays that have one (`decays`); the others get 0.
    layer_decay : layer l (`layer_of`) learns at layer_decay**(depth + 1 - l) of the rate; None: all at 1.
    depth : number of blocks; None counts them in `params`.
    frozen : keys of parameters that do not learn.
    whole : says of a key and its array whether the optimizer steps it as a whole, such as `muon.takes`.

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
    members: dict[tuple[int, bool, bool], list[str]] = {}  # (layer, without decay, as a whole) -> keys
    if layer_decay is None:
        depth = 0
    elif depth is None:
        depth = _count_blocks(flat)
    for key, array in flat.items():
        if key in frozen:
            continue
        layer = 0 if layer_decay is None else layer_of(key, depth)
        members.setdefault((layer, not decays(key, array), whole(key, array)), []).append(key)

    order: list[str] = []
    groups: list[Group] = []
    start = 0
    for (layer, without, matrices), keys in sorted(members.items()):
        stop = start + sum(flat[key].size for key in keys)
        kind = ("no_decay" if without else "decay") + (".matrices" if matrices else "")
        groups.append(
            Group(
                name=kind if layer_decay is None else f"layer{layer}.{kind}",
                start=start,
                stop=stop,
                weight_decay=0.0 if without else weight_decay,
                lr_scale=1.0 if layer_decay is None else layer_decay ** (depth + 1 - layer),
                matrices=tuple(flat[key].shape for key in keys) if matrices else (),
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
    update_matrix: Callable[..., None] | None = None,
    **hyper: Any,
) -> None:
    """Make one step of an optimizer in place, each group with its own decay and rate.

    Most optimizers treat every entry by itself, so the buffer is worked on in pieces that stay in the processor's
    cache, and threads can share them: the result is the same to the last bit.  Groups of matrices are worked on matrix
    by matrix.

    Parameters
    ----------
    update : `sgd.update`, `adam.update` or `adamw.update`.
    params, grads : (n,), packed in the groups' order; `params` is changed.
    state : of the optimizer's `init` on the whole buffer, changed in place: the step count rises by one.
    groups : of `parameter_groups`; they must tile the buffer.
    lr : the rate; group g steps with lr·g.lr_scale.
    workers : threads.
    update_matrix : such as `muon.update_matrix`: takes a matrix, its gradient, its part of the state m, the rate and
        weight_decay; for groups with `matrices`.
    hyper : what else `update` takes, the same for all groups.

    Raises
    ------
    ValueError : the groups leave entries out, overlap or end elsewhere than the buffer, or have matrices and nothing
        updates these; and as `update`.
    """
    bounds = [0, *(group.stop for group in groups)]
    if [group.start for group in groups] != bounds[:-1] or bounds[-1] != params.size:
        slices = [(group.start, group.stop) for group in groups]
        raise ValueError(f"the groups {slices} do not tile {params.size} parameters")
    if update_matrix is None and any(group.matrices for group in groups):
        raise ValueError("a group of matrices needs update_matrix: give muon.update_matrix, or groups without `whole`")
    before = np.array(state["step"])
    pieces = [piece for group in groups for piece in _pieces(group)]

    def run(number: int) -> Array:
        group, part, shape = pieces[number]
        rate = lr * group.lr_scale
        if shape:
            assert update_matrix is not None  # checked before any thread starts
            matrix, grad, moment = (array[part].reshape(shape) for array in (params, grads, state["m"]))
            update_matrix(matrix, grad, moment, rate, weight_decay=group.weight_decay)
            return before + 1
        own = {name: array[part] for name, array in state.items() if name != "step"}
        own["step"] = before.copy()  # a counter of its own: every piece makes the same step
        update(params[part], grads[part], own, rate, weight_decay=group.weight_decay, **hyper)
        return own["step"]

    for after in in_order(run, len(pieces), workers):
        state["step"][...] = after


def _pieces(group: Group) -> Iterator[tuple[Group, slice, tuple[int, ...]]]:
    """The parts of a group that are worked on by themselves; the shape of a matrix, () of others."""
    if not group.matrices:
        for start in range(group.start, group.stop, _PIECE):
            yield group, slice(start, min(start + _PIECE, group.stop)), ()
        return
    start = group.start
    for shape in group.matrices:
        yield group, slice(start, start + math.prod(shape)), shape
        start += math.prod(shape)


def _count_blocks(flat: dict[str, Array]) -> int:
    depth = len({key.split(".")[1] for key in flat if key.startswith("blocks.")})
    if depth == 0:
        raise ValueError("layer_decay needs parameters named 'blocks.0...', there are none")
    return depth
