"""Changes of parameters: entries rearranged, scaled or removed, with the way back for outputs and gradients."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import numpy as np

from numpy_vit.checks.port import Change, Flat
from numpy_vit.tree import Array

Order = Callable[[Array], Array]  # rearranges the entries of an array and keeps its shape


def rearranged(keys: str, order: Order, outputs: str = "") -> Change:
    """Return the change that rearranges the entries of the parameters whose keys match.

    Parameters
    ----------
    keys : a regular expression for whole keys
    order : the rearrangement
    outputs : a regular expression for recorded tensors that the port has in the old order: it rearranges the last axis
        only after them
    """

    def forward(flat: Flat) -> Flat:
        return {key: order(leaf) if re.fullmatch(keys, key) else leaf for key, leaf in flat.items()}

    def gradients(flat: Flat) -> Flat:
        return {key: _put_back(leaf, order) if re.fullmatch(keys, key) else leaf for key, leaf in flat.items()}

    def output(name: str, value: Array) -> Array:
        if not outputs or not re.fullmatch(outputs, name):
            return value
        where = order(np.arange(value.shape[-1]))
        old = np.empty_like(value)
        old[..., where] = value
        return old

    return Change(params=forward, gradients=gradients, output=output)


def _put_back(gradient: Array, order: Order) -> Array:
    """The transpose of the rearrangement, which is its inverse."""
    where = order(np.arange(gradient.size).reshape(gradient.shape))
    old = np.empty_like(gradient)
    old.reshape(-1)[where.reshape(-1)] = gradient.reshape(-1)
    return old


def scaled(keys: str, factor: Callable[[Array], Array], outputs: str = "") -> Change:
    """Return the change that multiplies the parameters whose keys match.

    Parameters
    ----------
    keys, outputs : as in `rearranged`
    factor : from an array to what it is multiplied with, no entry of which is zero
    """

    def forward(flat: Flat) -> Flat:
        return {key: leaf * factor(leaf) if re.fullmatch(keys, key) else leaf for key, leaf in flat.items()}

    def output(name: str, value: Array) -> Array:
        if not outputs or not re.fullmatch(outputs, name):
            return value
        return value / factor(np.ones(value.shape[-1], value.dtype))

    return Change(params=forward, gradients=forward, output=output)


def without(keys: str, neutral: float = 0.0) -> Change:
    """Return the change that makes the parameters whose keys match ineffective; they have no gradients then."""

    def forward(flat: Flat) -> Flat:
        return {key: np.full_like(leaf, neutral) if re.fullmatch(keys, key) else leaf for key, leaf in flat.items()}

    return Change(params=forward, gradients=dropping(keys))


def dropping(keys: str) -> Callable[[Flat], Flat]:
    """Return a function that leaves out the entries whose keys match."""
    return lambda flat: {key: leaf for key, leaf in flat.items() if not re.fullmatch(keys, key)}


def matching(keys: str, flat: Iterable[str]) -> list[str]:
    """Return the keys that match as a whole."""
    return [key for key in flat if re.fullmatch(keys, key)]
