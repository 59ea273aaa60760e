"""Scaled dot-product attention: softmax(q kᵀ/√d + bias) v, for every head at once."""

from __future__ import annotations

import math

import numpy as np

from numpy_vit.layers import dropout, softmax
from numpy_vit.tree import Array, Cache


def forward(
    q: Array,
    k: Array,
    v: Array,
    bias: Array | None = None,
    drop: float = 0.0,
    rng: np.random.Generator | None = None,
) -> tuple[Array, Cache]:
    """Mix the values of all tokens, weighted by how well their keys match each query.

    Parameters
    ----------
    q : (B, H, M, d)
    k, v : (B, H, N, d)
    bias : added to the scores, any shape that broadcasts to (B, H, M, N); None for no bias. -inf forbids a key; a query
        whose keys are all forbidden gives NaN, as in nn.MultiheadAttention
    drop : dropout rate of the attention weights

    Returns
    -------
    o : (B, H, M, d)

    Source: Vaswani et al. 2017, equation 1.
    """
    q = q * (1 / math.sqrt(q.shape[-1]))  # scaling q costs M·d products, scaling the scores M·N
    scores = q @ k.swapaxes(-1, -2)  # (B, H, M, N)
    if bias is not None:
        scores += bias
    weights, c_softmax = softmax.forward(scores)
    dropped, c_drop = dropout.forward(weights, drop, rng)
    return dropped @ v, (q, k, v, bias, dropped, c_softmax, c_drop)


def backward(do: Array, cache: Cache) -> tuple[Array, Array, Array, Array | None]:
    """Return dq, dk, dv and dbias (None where there was no bias).

    For one sample and head, with c = 1/√d, m for a query and n for a key:

    (1) s = c q kᵀ + bias,  p = softmax(s) over n,  p̃ = dropout(p),  o = p̃ v
    (2) o_m = Σ_n p̃_mn v_n      ⇒  dv = p̃ᵀ do,  dp̃ = do vᵀ
    (3) dp under the dropout's mask; then softmax's ds_mn = p_mn (dp_mn - Σ_j dp_mj p_mj)
    (4) s = … + bias            ⇒  dbias = ds, summed over every axis along which bias was broadcast
    (5) s = c q kᵀ              ⇒  dq = c ds k,  dk = c dsᵀ q
    """
    q, k, v, bias, dropped, c_softmax, c_drop = cache  # q is scaled already: it holds c q
    dv = dropped.swapaxes(-1, -2) @ do  # (2)
    dweights = dropout.backward(do @ v.swapaxes(-1, -2), c_drop)  # (2), (3)
    dscores = softmax.backward(dweights, c_softmax)  # (3)
    dbias = None if bias is None else _sum_to(dscores, bias.shape)  # (4)
    dk = dscores.swapaxes(-1, -2) @ q  # (5)
    dq = dscores @ k  # (5)
    dq *= 1 / math.sqrt(q.shape[-1])
    return dq, dk, dv, dbias


def weights(cache: Cache) -> Array:
    """Return the attention weights (B, H, M, N) before dropout: each row sums to 1."""
    *_, c_softmax, _ = cache
    (p,) = c_softmax
    return np.asarray(p)


def _sum_to(array: Array, shape: tuple[int, ...]) -> Array:
    """Sum over the axes along which `shape` was broadcast to `array`."""
    summed = array.sum(axis=tuple(range(array.ndim - len(shape))))
    stretched = tuple(i for i, side in enumerate(shape) if side == 1 and summed.shape[i] > 1)
    return np.asarray(summed.sum(axis=stretched, keepdims=True))
