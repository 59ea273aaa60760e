"""The layer under test: private float64 inputs, its forward and backward, and the contract they must keep."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from numpy_vit import tree
from numpy_vit.tree import Array


class ContractError(Exception):
    """The layer breaks a rule without which its gradients cannot be checked; the text says which."""


@dataclass(frozen=True)
class Subject:
    """A layer and inputs of its own.

    `leaves` are the arrays of `x` and `params` that are differentiated, by name ("x.0", "params.weight"):
    writing to one of them moves the input of the next forward.
    """

    forward: Callable[..., Any]
    backward: Callable[..., Any]
    params: Any
    x: Any
    leaves: dict[str, Array]

    def run_forward(self) -> tuple[Any, Any]:
        """Return y and the cache."""
        answer = self.forward(self.x) if self.params is None else self.forward(self.params, self.x)
        return _pair(answer, "forward", "(y, cache)")

    def outputs(self) -> Array:
        """Return all floating outputs as one vector, a copy."""
        # Steps may leave the forward's domain; whatever warns at x itself has done so before.
        with np.errstate(all="ignore"):
            return vector(self.run_forward()[0])

    def run_backward(self, dy: Any, cache: Any) -> dict[str, Any]:
        """Return the gradients by name; None for each array of x where the layer has no input gradient."""
        answer = self.backward(dy, cache)
        dx, grads = (answer, {}) if self.params is None else _pair(answer, "backward", "(dx, grads)")
        if dx is None:
            found: dict[str, Any] = {name: None for name in self.leaves if is_input(name)}
        else:
            found = named("x", dx)
        return {**found, **{name: leaf for name, leaf in named("params", grads).items() if leaf is not None}}

    def inputs(self) -> dict[str, Any]:
        """Return every leaf by name, those that are not differentiated included."""
        return {**named("x", self.x), **(named("params", self.params) if self.params is not None else {})}


def prepare(forward: Callable[..., Any], backward: Callable[..., Any], params: Any, x: Any) -> Subject:
    """Copy the inputs, every floating array as float64, and name those that are differentiated."""
    own_x = tree.map(_own, x)
    own_params = None if params is None else tree.map(_own, params)
    subject = Subject(forward, backward, own_params, own_x, {})
    subject.leaves.update({name: leaf for name, leaf in subject.inputs().items() if is_float(leaf)})
    return subject


def named(root: str, node: Any) -> dict[str, Any]:
    """Name every leaf: the root, and behind a dot its path if it has one."""
    return {f"{root}.{path}" if path else root: leaf for path, leaf in tree.flatten(node).items()}


def is_input(name: str) -> bool:
    """Whether the name is that of an array of x, rather than of params."""
    return name.split(".")[0] == "x"


def is_float(leaf: Any) -> bool:
    """Whether the leaf is a floating number or array of them, which alone have gradients."""
    return bool(np.asarray(leaf).dtype.kind == "f")


def vector(node: Any) -> Array:
    """Join the floating leaves of a tree to one vector, a copy."""
    return np.concatenate([np.ravel(leaf) for leaf in tree.flatten(node).values() if is_float(leaf)])


def check_outputs(y: Any) -> None:
    """Demand floating outputs, float64 throughout and finite."""
    leaves = {name: leaf for name, leaf in named("y", y).items() if is_float(leaf)}
    if not leaves:
        raise ContractError("forward answers nothing of a floating dtype: there is nothing to differentiate")
    for name, leaf in leaves.items():
        dtype = np.asarray(leaf).dtype
        if dtype != np.float64:
            raise ContractError(f"forward answers {dtype} for float64 input ({name}): something inside casts")
        if not np.isfinite(leaf).all():
            raise ContractError(f"forward answers NaN or infinity ({name})")


def snapshot(leaves: dict[str, Any]) -> dict[str, Array]:
    """Copy the arrays, to be handed to `check_unwritten` later."""
    return {name: np.array(leaf) for name, leaf in leaves.items() if np.asarray(leaf).dtype.kind in "fiubc"}


def check_unwritten(who: str, before: dict[str, Array], leaves: dict[str, Any]) -> None:
    """Demand that the arrays are what they were at the snapshot."""
    written = [name for name, old in before.items() if not np.array_equal(old, leaves[name], equal_nan=True)]
    if written:
        raise ContractError(f"{who} writes to its input: {', '.join(written)}")


def flaw(gradient: Any, leaf: Array, batch: int) -> str | None:
    """Return why a gradient cannot be compared with the numeric one, as the end of a sentence; None if it can.

    Parameters
    ----------
    gradient : what backward answered for `leaf`.
    batch : the batch size.
    """
    array = np.asarray(gradient)
    shape, expected = array.shape, leaf.shape
    if shape != expected:
        instead = f"it has shape {shape} instead of {expected}"
        if shape == (batch, *expected):
            return f"is not summed over the batch: {instead}"
        if shape == expected[::-1]:
            return f"is transposed: {instead}"
        return f"has the wrong shape: {instead}"
    if array.dtype != np.float64:
        return f"is {array.dtype} for float64 input: something inside the backward casts"
    if not np.isfinite(array).all():
        return "has NaN or infinite entries"
    return None


def batch_size(x: Any) -> int:
    """Return the length of the first axis of the first array of x, 1 if there is none."""
    shapes = [np.shape(leaf) for leaf in tree.flatten(x).values()]
    return next((shape[0] for shape in shapes if shape), 1)


def sample_of_output(y: Any, batch: int) -> Array | None:
    """Return the sample to which each entry of `vector(y)` belongs, None if y lacks the batch's axis."""
    shapes = [np.shape(leaf) for leaf in tree.flatten(y).values() if is_float(leaf)]
    if batch < 2 or any(shape[:1] != (batch,) for shape in shapes):
        return None
    sizes = [int(np.prod(shape[1:])) for shape in shapes]
    return np.concatenate([np.repeat(np.arange(batch), size) for size in sizes])


def _own(leaf: Any) -> Any:
    kind = np.asarray(leaf).dtype.kind
    if kind == "c":
        raise TypeError("complex inputs are not supported")
    if kind == "f":
        return np.array(leaf, np.float64)
    return leaf.copy() if isinstance(leaf, np.ndarray) else leaf


def _pair(answer: Any, who: str, expected: str) -> tuple[Any, Any]:
    if not isinstance(answer, tuple) or len(answer) != 2:
        raise TypeError(f"{who} must answer {expected}, not {type(answer).__name__}")
    return answer
