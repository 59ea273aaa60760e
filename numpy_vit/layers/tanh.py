"""The hyperbolic tangent, between pre-logits and head in the first ViTs."""

from __future__ import annotations

import numpy as np

from numpy_vit.tree import Array, Cache


def forward(x: Array) -> tuple[Array, Cache]:
    """Return y = tanh(x)."""
    y = np.tanh(x)
    return y, (y,)


def backward(dy: Array, cache: Cache) -> Array:
    """Return dx.

    (1) tanh' = 1 - tanh²  ⇒  dx = (1 - y²) dy
    """
    (y,) = cache
    dx: Array = dy * (1 - y * y)  # (1)
    return dx
