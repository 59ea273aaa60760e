"""Finding the first tensor that is not finite, when a loss is not."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from numpy_vit import tree
from numpy_vit.training.objectives import Objective
from numpy_vit.tree import Array, Params


class NotFiniteError(ArithmeticError):
    """A loss or gradient is NaN or infinite; the text names the first tensor that went bad, and what to try."""


def first_bad(model: ModuleType, params: Params, config: Any, images: Array, objective: Objective) -> str:
    """Return which tensor went bad first: a parameter, the images, an activation in forward order, or a gradient.

    The batch runs forward once more without dropout, with every intermediate recorded; "" where all is finite.
    """
    bad = _bad(tree.flatten(params))
    if bad:
        return f"parameter {bad}"
    if not np.isfinite(images).all():
        return "the images"
    record: dict[str, Array] = {}
    with np.errstate(all="ignore"):
        output, cache = model.forward(params, images, config, record=record)
        loss, c_loss = objective.forward(output, slice(None))
        bad = _bad(record)
        if bad:
            return f"activation {bad}"
        if not np.isfinite(loss):
            return "the loss of finite logits"
        _, grads = model.backward(objective.backward(1.0, c_loss), cache)
    bad = _bad(dict(reversed(tree.flatten(grads).items())))  # the last layer's gradient comes first
    return f"gradient of {bad}" if bad else ""


def _bad(tensors: dict[str, Array]) -> str:
    return next((name for name, tensor in tensors.items() if not np.isfinite(tensor).all()), "")
