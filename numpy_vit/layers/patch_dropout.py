"""Patch dropout: in training, only some of each image's patches go on."""

from __future__ import annotations

import numpy as np

from numpy_vit.tree import Array, Cache


def kept(patches: int, rate: float) -> int:
    """Return how many of so many patches stay: at least one; timm's rounding."""
    return max(1, int(patches * (1 - rate)))


def forward(x: Array, rate: float, prefix: int, rng: np.random.Generator | None) -> tuple[Array, Cache]:
    """Keep the prefix tokens and a random choice of the patches, a new one for every image, in their order.

    Positions have been added before, so that the tokens that stay know where they are from; nothing is scaled, since
    attention and means are averages already.  The blocks' cost falls with the number of tokens.

    Parameters
    ----------
    x : (B, T+N, D)
    rate : share of the patches that is dropped
    prefix : T
    rng : draws the choice; None keeps every patch

    Returns
    -------
    y : (B, T+M, D), with M the `kept` number

    Source: Liu et al. 2023, "PatchDropout", section 3; timm's PatchDropout.
    """
    B, tokens, _ = x.shape
    count = kept(tokens - prefix, rate)
    if rng is None or count == tokens - prefix:
        return x, (None,)
    drawn = np.argsort(rng.random((B, tokens - prefix), np.float32), axis=1, kind="stable")[:, :count]
    every = np.broadcast_to(np.arange(prefix), (B, prefix))
    chosen = np.concatenate([every, np.sort(drawn, axis=1) + prefix], axis=1)  # (B, T+M)
    rows = (chosen + np.arange(B)[:, None] * tokens).ravel()  # of x as (B·(T+N), D)
    y: Array = x.reshape(B * tokens, -1).take(rows, axis=0).reshape(B, prefix + count, -1)
    return y, ((rows, x.shape),)


def backward(dy: Array, cache: Cache) -> Array:
    """Return dx.

    With S the matrix of zeros and ones that picks the rows, each row at most once:

    (1) y = S x  ⇒  dx = Sᵀ dy: each row of dy goes back to where its token was
    (2) a token that was dropped has no part in y  ⇒  its row of dx is zero
    """
    (picked,) = cache
    if picked is None:
        return dy
    rows, shape = picked
    dx = np.zeros(shape, dy.dtype)  # (2)
    dx.reshape(-1, shape[-1])[rows] = dy.reshape(-1, shape[-1])  # (1)
    return dx
