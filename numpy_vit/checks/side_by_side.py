"""Analytic beside numeric gradients, for people who want to see the numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from numpy_vit import tree
from numpy_vit.checks.examples import Case
from numpy_vit.checks.numerical import derivative, element_line, step
from numpy_vit.checks.subject import prepare, vector
from numpy_vit.tree import Array


@dataclass(frozen=True)
class Beside:
    """Some entries of one gradient, analytic and numeric, with where and at which values they were taken."""

    name: str
    shape: tuple[int, ...]
    indices: list[tuple[int, ...]]
    values: Array
    analytic: Array
    numeric: Array


def side_by_side(case: Case, rng: np.random.Generator, most: int = 5) -> Iterator[Beside]:
    """Yield `most` entries, spread evenly, of every gradient under a random upstream gradient."""
    layer = prepare(case.forward, case.backward, case.params, case.x)
    y, cache = layer.run_forward()
    dy = tree.map(lambda leaf: rng.standard_normal(np.shape(leaf)), y)
    found = layer.run_backward(dy, cache)
    v = vector(dy)
    for name, leaf in layer.leaves.items():
        places = np.unique(np.linspace(0, leaf.size - 1, most).round().astype(int))
        indices = [tuple(map(int, np.unravel_index(place, leaf.shape))) for place in places]
        numeric: list[Any] = [v @ derivative(element_line(layer.outputs, leaf, index), step(1.0)) for index in indices]
        yield Beside(name, leaf.shape, indices, leaf.flat[places], np.ravel(found[name])[places], np.array(numeric))
