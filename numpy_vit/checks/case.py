"""One example of a layer or model on which its gradients can be checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from numpy_vit.tree import Array, Params

SEED = 10  # of dropout and drop path: the generator is made anew for each evaluation, so that the same entries drop


@dataclass(frozen=True)
class Case:
    """One example: forward and backward as `gradcheck` takes them, with parameters and input.

    `params` is None for a layer without parameters.  `directions` is None where every entry is checked, or the
    number of random directions for each array.
    """

    what: str
    forward: Callable[..., Any]
    backward: Callable[..., Any]
    params: Params | None
    x: Any
    directions: int | None = None


def normal(rng: np.random.Generator, *shape: int) -> Array:
    """Draw standard normal numbers."""
    return rng.standard_normal(shape)
