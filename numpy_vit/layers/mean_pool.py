"""Pooling by the mean of the patch tokens."""

from __future__ import annotations

import numpy as np

from numpy_vit.tree import Array, Cache


def forward(x: Array, first: int = 0) -> tuple[Array, Cache]:
    """Return the mean over the tokens from `first` on: class token and registers do not take part.

    Parameters
    ----------
    x : (B, T+N, D)
    first : T, the number of prefix tokens

    Returns
    -------
    y : (B, D)

    Source: timm's global_pool="avg".
    """
    return x[:, first:].mean(axis=1), (x.shape, first)


def backward(dy: Array, cache: Cache) -> Array:
    """Return dx.

    (1) y_b = 1/N Σ_n x_bn over the N patch tokens  ⇒  dx_bn = dy_b / N for each of them, zero for the others
    """
    (B, tokens, D), first = cache
    dx = np.zeros((B, tokens, D), dy.dtype)
    dx[:, first:] = dy[:, None] / (tokens - first)  # (1)
    return dx
