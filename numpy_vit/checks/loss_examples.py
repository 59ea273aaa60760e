"""Small examples of the losses."""

from __future__ import annotations

from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

from numpy_vit.checks.case import Case, normal


def cross_entropy_cases(layer: ModuleType, rng: np.random.Generator) -> list[Case]:
    """Return the examples of cross_entropy."""
    logits, indices = 2 * normal(rng, 4, 5), np.array([0, 3, 4, 3])
    soft, weights = rng.dirichlet(np.ones(5), 4), rng.uniform(0.2, 2, 4)
    choices: dict[str, dict[str, Any]] = {
        "indices": {"targets": indices},
        "soft targets, smoothing 0.1": {"targets": soft, "label_smoothing": 0.1},
        "targets that sum to 2, sum": {"targets": 2 * soft, "reduction": "sum"},
        "weights, none": {"targets": indices, "weights": weights, "reduction": "none"},
        "weights, mean": {"targets": indices, "weights": weights},
    }
    return [Case(what, partial(layer.forward, **kw), layer.backward, None, logits) for what, kw in choices.items()]


def kl_divergence_cases(layer: ModuleType, rng: np.random.Generator) -> list[Case]:
    """Return the examples of kl_divergence."""
    logits, teacher = 2 * normal(rng, 4, 5), 2 * normal(rng, 4, 5)
    choices: dict[str, dict[str, Any]] = {
        "temperature 3, mean": {"temperature": 3.0},
        "temperature 1, sum": {"reduction": "sum"},
        "temperature 0.5, none": {"temperature": 0.5, "reduction": "none"},
    }
    forward = partial(layer.forward, teacher_logits=teacher)
    return [Case(what, partial(forward, **kw), layer.backward, None, logits) for what, kw in choices.items()]


def mse_cases(layer: ModuleType, rng: np.random.Generator) -> list[Case]:
    """Return the examples of mse."""
    target, mask = normal(rng, 2, 4, 3), np.array([[1.0, 0, 0, 1], [0, 1, 1, 1]])
    x = normal(rng, 2, 4, 3)
    return [
        Case("(2, 4, 3)", partial(layer.forward, target=target), layer.backward, None, x),
        Case("mask", partial(layer.forward, target=target, mask=mask), layer.backward, None, x),
    ]
