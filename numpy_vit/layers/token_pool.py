"""Pooling by the class token."""

from __future__ import annotations

import numpy as np

from numpy_vit.tree import Array, Cache


def forward(x: Array) -> tuple[Array, Cache]:
    """Return the first token of each sample.

    Parameters
    ----------
    x : (B, N, D)

    Returns
    -------
    y : (B, D)

    Source: Dosovitskiy et al. 2021, equation 4.
    """
    return x[:, 0], (x.shape,)


def backward(dy: Array, cache: Cache) -> Array:
    """Return dx.

    (1) y_b = x_b0  ⇒  dx_b0 = dy_b, and zero for every other token
    """
    (shape,) = cache
    dx = np.zeros(shape, dy.dtype)
    dx[:, 0] = dy  # (1)
    return dx
