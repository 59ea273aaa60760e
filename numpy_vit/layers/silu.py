"""SiLU (swish), x σ(x): the gate of SwiGLU."""

from __future__ import annotations

import numpy as np

from numpy_vit.layers import elementwise
from numpy_vit.tree import Array, Cache


def forward(x: Array) -> tuple[Array, Cache]:
    """Return y = x σ(x).

    Source: Hendrycks and Gimpel 2016; Ramachandran et al. 2017; PyTorch's nn.SiLU.
    """
    y, slope = elementwise.value_and_slope(_value_and_slope, x)
    return y, (slope,)


def backward(dy: Array, cache: Cache) -> Array:
    """Return dx.

    With s = σ(x):

    (1) s' = s (1 - s)
    (2) y = x s  ⇒  y' = s + x s' = s (1 + x (1 - s))
    (3) dx = y' dy
    """
    (slope,) = cache
    dx: Array = dy * slope  # (3)
    return dx


def _value_and_slope(x: Array) -> tuple[Array, Array]:
    s = 0.5 + 0.5 * np.tanh(0.5 * x)  # σ by tanh: exp would overflow for large -x
    return x * s, s * (1 + x * (1 - s))  # (2)
