"""A layer that a model may lack: without parameters it is the identity."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from numpy_vit.tree import Array, Cache, Params


def forward(layer: ModuleType, params: Params | None, x: Array, *args: Any) -> tuple[Array, Cache]:
    """Return layer.forward(params, x, *args), or `x` itself where the model has no such layer.

    Parameters
    ----------
    layer : a module with forward(params, x, ...) and backward(dy, cache) -> dx, grads
    params : its parameters; None or an empty dict means that the layer is absent
    """
    if not params:
        return x, ()
    y, inner = layer.forward(params, x, *args)
    return y, (layer, inner)


def backward(dy: Array, cache: Cache) -> tuple[Array, Params]:
    """Return layer.backward's dx and grads, or `dy` and no gradients where the layer was absent.

    y = x, so dx = dy.
    """
    if not cache:
        return dy, {}
    layer, inner = cache
    dx, grads = layer.backward(dy, inner)
    return dx, grads
