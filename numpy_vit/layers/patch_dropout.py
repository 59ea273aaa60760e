"""Patch dropout: in training, only some of each image's patches go on."""

from __future__ import annotations

import numpy as np

from numpy_vit.layers import random_masking
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
    shuffle, _ = random_masking.orders(rng.random((B, tokens - prefix), np.float32))
    y, c_masking = random_masking.forward(x, np.sort(shuffle[:, :count], axis=1), prefix)
    return y, (c_masking,)


def backward(dy: Array, cache: Cache) -> Array:
    """Return dx.

    (1) y gathers the tokens that stay  ⇒  dx is the gather's adjoint of dy: each row goes back to where its token was
    (2) a token that was dropped has no part in y  ⇒  its row of dx is zero
    """
    (c_masking,) = cache
    return dy if c_masking is None else random_masking.backward(dy, c_masking)  # (1), (2)
