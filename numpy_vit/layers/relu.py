"""The rectifier, PyTorch's default inside nn.TransformerEncoderLayer."""

from __future__ import annotations

import numpy as np

from numpy_vit.tree import Array, Cache


def forward(x: Array) -> tuple[Array, Cache]:
    """Return y = max(x, 0), entry by entry.

    Source: Nair and Hinton 2010.
    """
    y: Array = np.maximum(x, 0)
    return y, (y,)


def backward(dy: Array, cache: Cache) -> Array:
    """Return dx.

    (1) y = x for x > 0, else 0  ⇒  dx = dy where y > 0, else 0; at the kink 0, as in PyTorch
    """
    (y,) = cache
    dx: Array = dy * (y > 0)  # (1)
    return dx
