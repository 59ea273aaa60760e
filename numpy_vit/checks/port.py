"""Our model as somebody may have ported it: its configuration, its parameters, and changes that were made to it.

A change says what it does to the model, and how the changed model's tensors look from outside.  Somebody who reads the
rows of qkv in another order has the same weights, the same output of qkv and the same gradients under the same names
as everybody: only what comes after differs.  We get his model by rearranging our weights, so our output of qkv and our
gradients have to be put back before they are compared with his.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np

from numpy_vit import tree
from numpy_vit.checks import act_none
from numpy_vit.layers import block, silu
from numpy_vit.models import deit, vit
from numpy_vit.tree import Array

Flat: TypeAlias = dict[str, Array]
UNUSUAL: dict[str, ModuleType] = {"none": act_none, "silu": silu}


@dataclass(frozen=True)
class Ported(vit.Config):
    """A configuration with choices that no published model has, but ports do.

    Parameters
    ----------
    block_eps : of the norms inside blocks, where it is not norm_eps
    unusual_act : a key of UNUSUAL that takes the place of act
    """

    block_eps: float | None = None
    unusual_act: str | None = None

    @property
    def blocks(self) -> list[block.Config]:
        """The choices of each block."""
        found = super().blocks
        if self.block_eps is not None:
            found = [replace(one, eps=self.block_eps) for one in found]
        if self.unusual_act is not None:
            found = [replace(one, act=UNUSUAL[self.unusual_act]) for one in found]
        return found


@dataclass(frozen=True)
class PortedDistilled(Ported, deit.Config):
    """The same of a model with two heads."""


def reconfigured(config: vit.Config, **changes: Any) -> Ported:
    """Return the configuration with some fields changed; a warning about it was given when it was first made."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        values = {field.name: getattr(config, field.name) for field in fields(config)}
        kind = PortedDistilled if isinstance(config, deit.Config) else Ported
        return kind(**{**values, **changes})


def _same_flat(flat: Flat) -> Flat:
    return flat


def _same_array(array: Array) -> Array:
    return array


def _same_output(name: str, value: Array) -> Array:
    return value


@dataclass(frozen=True)
class Change:
    """One difference between our model and a port of it.

    Parameters
    ----------
    config : fields that differ
    params : our flat parameters -> those with which our model computes what the port does
    images : the input likewise
    output : our recorded tensor -> that of the port
    gradients : the gradients of the changed parameters -> those that the port has under its own names
    """

    config: Mapping[str, Any] | None = None
    params: Callable[[Flat], Flat] = _same_flat
    images: Callable[[Array], Array] = _same_array
    output: Callable[[str, Array], Array] = _same_output
    gradients: Callable[[Flat], Flat] = _same_flat


@dataclass(frozen=True)
class StoredPositions:
    """A position table (1, T+N, D) before it was resized: its prefix rows T and its grid of patches."""

    table: Array
    prefix: int
    grid: tuple[int, int]


@dataclass(frozen=True)
class Port:
    """A model, the input, and the changes made so far; the stored positions where they were resized for the input."""

    config: vit.Config
    params: Flat
    images: Array
    upstream: Array | None = None
    model: ModuleType = vit
    stored: StoredPositions | None = None
    changes: tuple[Change, ...] = ()

    def changed(self, change: Change) -> Port:
        """Return the port with one more change."""
        config = reconfigured(self.config, **change.config) if change.config else self.config
        params, images = change.params(self.params), change.images(self.images)
        return replace(self, config=config, params=params, images=images, changes=(*self.changes, change))

    def output(self, name: str, value: Array) -> Array:
        """Return our recorded tensor as the port has it."""
        for change in self.changes:
            value = change.output(name, value)
        return value

    def forward(self, dtype: Any, record: dict[str, Array]) -> tuple[Array, tree.Cache]:
        """Run the model in `dtype`, recording its own tensors (see `output`)."""
        params = tree.unflatten({key: leaf.astype(dtype, copy=False) for key, leaf in self.params.items()})
        params.setdefault("blocks", [])
        logits, cache = self.model.forward(params, self.images.astype(dtype), self.config, record=record)
        return logits, cache

    def outputs(self, dtype: Any) -> tuple[Flat, tree.Cache]:
        """Return every recorded tensor as the port has it, and the cache for `gradients`."""
        record: dict[str, Array] = {}
        _, cache = self.forward(dtype, record)
        return {name: self.output(name, value) for name, value in record.items()}, cache

    def put_back(self, gradients: Flat) -> Flat:
        """Return our own gradients as the port has them, in the order of backward: the head's first."""
        for change in reversed(self.changes):
            gradients = change.gradients(gradients)
        return {key: gradients[key] for key in sorted(gradients, key=_backward_order)}

    def own_gradients(self, cache: tree.Cache, dtype: Any) -> Flat:
        """Return the gradients of our changed parameters; those of a port whose weights themselves are changed."""
        if self.upstream is None:
            return {}
        dimages, grads = self.model.backward(self.upstream.astype(dtype), cache, input_grad=True)
        flat = {key: leaf for key, leaf in tree.flatten(grads).items() if isinstance(leaf, np.ndarray)}
        return flat | {"images": dimages}


def _backward_order(key: str) -> tuple[int, int, int]:
    """From the head down to the input; inside a block from the MLP's end to the first norm."""
    ends = ("head", "head_dist", "pre_logits", "fc_norm", "attn_pool", "norm", "blocks", "norm_pre", "pos_embed")
    parts = key.split(".")
    top = ends.index(parts[0]) if parts[0] in ends else len(ends) + (parts[0] == "images")
    if parts[0] != "blocks":
        return top, 0, 0
    inner = (
        "ls2",
        "mlp.fc2",
        "mlp.fc1",
        "norm2",
        "ls1",
        "attn.proj",
        "attn.k_norm",
        "attn.q_norm",
        "attn.qkv",
        "norm1",
    )
    name = ".".join(parts[2:-1])
    return top, -int(parts[1]), inner.index(name) if name in inner else len(inner)
