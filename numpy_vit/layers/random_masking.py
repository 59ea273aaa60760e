"""Keeping a random part of the patches of every image: a shuffle by sorted noise, and a gather."""

from __future__ import annotations

import numpy as np

from numpy_vit.tree import Array, Cache


def orders(noise: Array) -> tuple[Array, Array]:
    """Return the shuffle that sorts each image's noise, and the one that restores the order.

    Parameters
    ----------
    noise : (B, N), one number a patch; patches of little noise come first, equal ones in their own order

    Returns
    -------
    shuffle, restore : (B, N) ints: shuffled place i holds patch shuffle[b, i], and patch n lies at place restore[b, n].
        So patches shuffle[:, :K] are the K that are kept, and patch n is removed where restore[b, n] >= K

    Raises
    ------
    ValueError : noise of another number of axes.

    Source: He et al. 2022, section 3, "Simple implementation".
    """
    if noise.ndim != 2:
        raise ValueError(f"noise {noise.shape} has to be (B, N): one number for each patch of each image")
    shuffle = np.argsort(noise, axis=1, kind="stable")
    return shuffle, np.argsort(shuffle, axis=1, kind="stable")  # the inverse of a permutation is what sorts it


def forward(x: Array, visible: Array, first: int = 0) -> tuple[Array, Cache]:
    """Gather the visible patches of each image; the prefix tokens stay in front.

    Parameters
    ----------
    x : (B, T+N, D)
    visible : (B, K), the patches to keep, each at most once, counted without the prefix tokens
    first : T, the number of prefix tokens

    Returns
    -------
    y : (B, T+K, D)

    Source: He et al. 2022, section 3.
    """
    rows = np.arange(len(x))[:, None]
    y = np.concatenate([x[:, :first], x[rows, first + visible]], axis=1)
    return y, (x.shape, visible, first)


def backward(dy: Array, cache: Cache) -> Array:
    """Return dx.

    With v = visible, and S_b the (K, N) matrix of 0 and 1 that has its ones at (i, v_bi):

    (1) y_bi = x_b,v_bi, so y_b = S_b x_b          (the gather)
    (2) dx_b = S_bᵀ dy_b                           (its adjoint is the scatter)
    (3) row n of S_bᵀ has a one at i if v_bi = n, which at most one i fulfils:
        dx_b,v_bi = dy_bi, and zero for every patch that was removed
    (4) a prefix token stays where it is: its dx is its dy
    """
    shape, visible, first = cache
    dx = np.zeros(shape, dy.dtype)
    dx[np.arange(len(dy))[:, None], first + visible] = dy[:, first:]  # (3)
    dx[:, :first] = dy[:, :first]  # (4)
    return dx
