"""Drop path (stochastic depth): a residual branch is left out for some samples."""

from __future__ import annotations

import numpy as np

from numpy_vit.tree import Array, Cache


def forward(x: Array, rate: float, rng: np.random.Generator | None) -> tuple[Array, Cache]:
    """Set whole samples of a branch to zero with probability `rate` and divide the others by 1 - rate.

    Parameters
    ----------
    x : (B, ...)
    rate : in [0, 1)
    rng : None means evaluation: y is x itself

    Raises
    ------
    ValueError : a rate outside [0, 1).

    Source: Huang et al. 2016; per sample and divided by the keep probability as in timm's DropPath.
    """
    if not 0 <= rate < 1:
        raise ValueError(f"a drop path rate lies in [0, 1), not {rate}")
    if rng is None or rate == 0:
        return x, ()
    keep = (rng.random(len(x), np.float32) >= rate).astype(x.dtype)
    mask = keep.reshape(-1, *[1] * (x.ndim - 1)) * (1 / (1 - rate))  # (B, 1, 1)
    return x * mask, (mask,)


def backward(dy: Array, cache: Cache) -> Array:
    """Return dx.

    (1) y_b = m_b x_b with one number m_b = 0 or 1/(1 - rate) for the whole sample b
    (2) dx_b = m_b dy_b
    """
    if not cache:
        return dy
    (mask,) = cache
    dx: Array = dy * mask  # (2)
    return dx
