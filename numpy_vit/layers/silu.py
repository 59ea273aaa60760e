"""SiLU (swish), x σ(x): the gate of SwiGLU."""

from __future__ import annotations

import numpy as np

from numpy_vit.layers import elementwise
from numpy_vit.tree import Array, Cache


def forward(x: Array) -> tuple[Array, Cache]:
    """Return y = x σ(x).

    Source: Hendrycks and Gimpel 2016; Ramachandran et al. 2017; PyTorch's nn.SiLU.
    """
    s, y = np.empty(x.shape, x.dtype), np.empty(x.shape, x.dtype)
    for xs, ss, ys in elementwise.pieces(x, s, y):
        np.tanh(xs * 0.5, out=ss)  # σ by tanh: exp would overflow for large -x
        ss *= 0.5
        ss += 0.5
        np.multiply(xs, ss, out=ys)
    return y, (x, s)


def backward(dy: Array, cache: Cache) -> Array:
    """Return dx.

    With s = σ(x):

    (1) s' = s (1 - s)
    (2) y = x s  ⇒  y' = s + x s' = s (1 + x (1 - s))
    (3) dx = y' dy
    """
    x, s = cache
    dx = np.empty(x.shape, x.dtype)
    for xs, ss, dys, dxs in elementwise.pieces(x, s, dy, dx):
        slope = ss * (1 + xs * (1 - ss))  # (2)
        np.multiply(slope, dys, out=dxs)  # (3)
    return dx
