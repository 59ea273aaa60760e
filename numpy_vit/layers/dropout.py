"""Dropout: entries are set to zero at random, the others scaled up."""

from __future__ import annotations

import numpy as np

from numpy_vit.tree import Array, Cache


def forward(x: Array, rate: float, rng: np.random.Generator | None) -> tuple[Array, Cache]:
    """Set each entry to zero with probability `rate` and divide the others by 1 - rate.

    Parameters
    ----------
    x : any shape
    rate : in [0, 1)
    rng : None means evaluation: y is x itself

    Raises
    ------
    ValueError : a rate outside [0, 1).

    Source: Srivastava et al. 2014, in the inverted form of every framework.
    """
    if not 0 <= rate < 1:
        raise ValueError(f"a dropout rate lies in [0, 1), not {rate}")
    if rng is None or rate == 0:
        return x, ()
    # float32 draws whatever the dtype of x, so that one seed drops the same entries in float32 and float64
    mask = (rng.random(x.shape, np.float32) >= rate).astype(x.dtype)
    mask *= 1 / (1 - rate)
    return x * mask, (mask,)


def backward(dy: Array, cache: Cache) -> Array:
    """Return dx.

    (1) y_i = m_i x_i with m_i = 0 or 1/(1 - rate), drawn without looking at x
    (2) dx_i = m_i dy_i
    """
    if not cache:
        return dy
    (mask,) = cache
    dx: Array = dy * mask  # (2)
    return dx
