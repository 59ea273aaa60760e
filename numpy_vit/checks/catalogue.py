"""Every layer and model in reading order, each with examples on which its gradients can be checked."""

from __future__ import annotations

import importlib
from types import ModuleType

import numpy as np

from numpy_vit.checks.examples import EXAMPLES, MODELS, Case

__all__ = ["Case", "cases", "module", "names"]


def names() -> list[str]:
    """Return the layers in reading order, then the models."""
    return list(EXAMPLES)


def module(name: str) -> ModuleType:
    """Return the module of a layer or model.

    Raises
    ------
    ValueError : an unknown name; the message lists those that exist.
    """
    if name not in EXAMPLES:
        raise ValueError(f"unknown layer {name!r}: choose one of {', '.join(EXAMPLES)}")
    return importlib.import_module(f"numpy_vit.{'models' if name in MODELS else 'layers'}.{name}")


def cases(name: str, seed: int = 0, of: ModuleType | None = None) -> list[Case]:
    """Return the examples of a layer or model, with random parameters, scales and biases away from 1 and 0.

    Parameters
    ----------
    seed : of the random numbers
    of : a module that takes the place of the catalogue's, such as one whose backward was broken on purpose
    """
    layer = module(name) if of is None else of
    return EXAMPLES[name](layer, np.random.default_rng(seed))
