"""Restoring the order of shuffled patches, with one learned token in every place whose patch was removed."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

from numpy_vit.layers import initial
from numpy_vit.tree import Array, Cache, Params


def init(dim: int, rng: np.random.Generator, dtype: DTypeLike = np.float32) -> Params:
    """Return mask_token (1, 1, D) drawn with deviation 0.02."""
    return {"mask_token": initial.normal((1, 1, dim), rng, 0.02, dtype)}


def forward(params: Params, x: Array, restore: Array, first: int = 0) -> tuple[Array, Cache]:
    """Append the mask token for every removed patch, then put each patch back to where it came from.

    Parameters
    ----------
    params : mask_token (1, 1, D); other entries are not looked at
    x : (B, T+K, D), the prefix tokens and the K visible patches in the shuffled order
    restore : (B, N), the shuffled place of each patch, as from random_masking.orders
    first : T, the number of prefix tokens

    Returns
    -------
    y : (B, T+N, D)

    Raises
    ------
    ValueError : more visible patches than there are patches.

    Source: He et al. 2022, section 3, "MAE decoder" and "Simple implementation".
    """
    (B, N), K = restore.shape, x.shape[1] - first
    if K > N:
        raise ValueError(f"{K} visible patches do not fit into {N}: {first} of the {x.shape[1]} tokens are no patches")
    z = np.empty((B, N, x.shape[2]), x.dtype)  # the shuffled list
    z[:, :K] = x[:, first:]
    z[:, K:] = params["mask_token"]
    y = np.concatenate([x[:, :first], z[np.arange(B)[:, None], restore]], axis=1)
    return y, (restore, K, first)


def backward(dy: Array, cache: Cache) -> tuple[Array, Params]:
    """Return dx and the mask token's gradient.

    With z_b the shuffled list of N tokens, r = restore, and P_b the (N, N) permutation with its ones at (n, r_bn):

    (1) y_bn = z_b,r_bn, so y_b = P_b z_b
    (2) dz_b = P_bᵀ dy_b, and P_bᵀ = P_b⁻¹: the shuffle that was undone.  dz_b,r_bn = dy_bn, each place once
    (3) z_bi = x_bi for i < K              ⇒  dx_bi = dz_bi
    (4) z_bi = mask token for i >= K, the same for every image and place
                                           ⇒  its gradient is the sum of dz_bi over b and i >= K
    (5) a prefix token stays where it is   ⇒  its dx is its dy
    """
    restore, K, first = cache
    dz = np.empty((*restore.shape, dy.shape[2]), dy.dtype)
    dz[np.arange(len(dy))[:, None], restore] = dy[:, first:]  # (2)
    dx = np.concatenate([dy[:, :first], dz[:, :K]], axis=1)  # (5), (3)
    return dx, {"mask_token": dz[:, K:].sum(axis=(0, 1), keepdims=True)}  # (4)
