"""The representation layer between pooling and head: a linear layer and a tanh."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

from numpy_vit.layers import linear, tanh
from numpy_vit.tree import Array, Cache, Params


def init(dim: int, size: int, rng: np.random.Generator, dtype: DTypeLike = np.float32) -> Params:
    """Return fc.weight (size, D) and fc.bias (size,)."""
    return {"fc": linear.init(dim, size, rng, dtype=dtype)}


def forward(params: Params, x: Array) -> tuple[Array, Cache]:
    """Return y = tanh(x Wᵀ + b).

    Parameters
    ----------
    params : fc
    x : (B, D)

    Source: Dosovitskiy et al. 2021, section 3.1 (the MLP head of pre-training); torchvision's representation_size.
    """
    x, c_fc = linear.forward(params["fc"], x)
    x, c_tanh = tanh.forward(x)
    return x, (c_fc, c_tanh)


def backward(dy: Array, cache: Cache) -> tuple[Array, Params]:
    """Return dx and the gradients.

    (1) y = tanh(u)      ⇒  du = (1 - y²) dy
    (2) u = x Wᵀ + b     ⇒  the linear layer's dx, dW, db
    """
    c_fc, c_tanh = cache
    dx = tanh.backward(dy, c_tanh)  # (1)
    dx, grads = linear.backward(dx, c_fc)  # (2)
    return dx, {"fc": grads}
