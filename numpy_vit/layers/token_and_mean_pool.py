"""Pooling by the class token and the mean of the patch tokens, one behind the other: what DINOv2's classifier reads."""

from __future__ import annotations

import numpy as np

from numpy_vit.layers import mean_pool, token_pool
from numpy_vit.tree import Array, Cache


def forward(x: Array, first: int = 0) -> tuple[Array, Cache]:
    """Return [class token, mean over the tokens from `first` on].

    Parameters
    ----------
    x : (B, T+N, D)
    first : T, the number of prefix tokens

    Returns
    -------
    y : (B, 2D)

    Source: Oquab et al. 2024 (DINOv2), section 7.1.
    """
    token, c_token = token_pool.forward(x)
    mean, c_mean = mean_pool.forward(x, first)
    return np.concatenate([token, mean], axis=-1), (c_token, c_mean)


def backward(dy: Array, cache: Cache) -> Array:
    """Return dx.

    (1) y = [token, mean]   ⇒  the halves of dy go to the two pools
    (2) both read the same x  ⇒  their dx add up
    """
    c_token, c_mean = cache
    dtoken, dmean = np.split(dy, 2, axis=-1)  # (1)
    return token_pool.backward(dtoken, c_token) + mean_pool.backward(dmean, c_mean)  # (2)
