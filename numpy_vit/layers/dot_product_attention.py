"""Scaled dot-product attention: softmax(q kᵀ/√d + bias) v, for every head at once, a chunk of queries at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from numpy_vit.layers import dropout, softmax
from numpy_vit.tree import Array, Cache

AT_ONCE = 1 << 21  # weights, 8 MB of float32: the 14x14 patches of some images fit at once


def forward(
    q: Array,
    k: Array,
    v: Array,
    bias: Array | None = None,
    drop: float = 0.0,
    rng: np.random.Generator | None = None,
    at_once: int = AT_ONCE,
) -> tuple[Array, Cache]:
    """Mix the values of all tokens, weighted by how well their keys match each query.

    Parameters
    ----------
    q : (B, H, M, d)
    k, v : (B, H, N, d); v may have another width, which o then has
    bias : added to the scores, any shape that broadcasts to (B, H, M, N); None for no bias. -inf forbids a key; a query
        whose keys are all forbidden gives NaN, as in nn.MultiheadAttention
    drop : dropout rate of the attention weights
    at_once : how many weights may exist at a time; one row a head does in any case

    Returns
    -------
    o : (B, H, M, d)

    Source: Vaswani et al. 2017, equation 1; the loop over queries Rabe & Staats 2021.
    """
    B, H, M, d = q.shape
    q = q * (1 / math.sqrt(d))  # scaling q costs M·d products, scaling the scores M·N
    o = np.empty((B, M, H, v.shape[-1]), q.dtype).transpose(0, 2, 1, 3)  # lies in memory as the projection wants it
    chunks = []
    for rows in _chunks(M, at_once // (B * H * k.shape[2])):
        p = _softmaxed(q[:, :, rows], k, _rows_of(bias, rows))
        dropped, c_drop = dropout.forward(p, drop, rng)
        np.matmul(dropped, v, out=o[:, :, rows])
        # kept where one chunk is all; where N is large, they would be most of the model's memory
        chunks.append((rows, p if rows == slice(0, M) else None, c_drop))
    return o, (q, k, v, bias, chunks)


def backward(do: Array, cache: Cache) -> tuple[Array, Array, Array, Array | None]:
    """Return dq, dk, dv and dbias (None where there was no bias).

    For one sample and head, with c = 1/√d, m for a query and n for a key:

    (1) s = c q kᵀ + bias,  p = softmax(s) over n,  p̃ = dropout(p),  o = p̃ v
    (2) o_m = Σ_n p̃_mn v_n      ⇒  dv = p̃ᵀ do,  dp̃ = do vᵀ
    (3) dp under the dropout's mask; then softmax's ds_mn = p_mn (dp_mn - Σ_j dp_mj p_mj)
    (4) s = … + bias            ⇒  dbias = ds, summed over every axis along which bias was broadcast
    (5) s = c q kᵀ              ⇒  dq = c ds k,  dk = c dsᵀ q
    (6) Row m of s, p and ds needs query m, all keys and all values, and no other row.  So the queries can come chunk
        after chunk: a chunk's p is computed again from (1), where forward did not keep it, it gives its own rows of dq,
        and dk and dv are sums over m, to which every chunk adds its part.  Memory is a chunk's, dropout's masks apart.
    """
    q, k, v, bias, chunks = cache  # q is scaled already: it holds c q
    dq, dk, dv = np.empty(q.shape, q.dtype), np.zeros(k.shape, k.dtype), np.zeros(v.shape, v.dtype)
    dbias = None if bias is None else np.zeros_like(bias)
    for rows, p, c_drop in chunks:
        if p is None:
            p = _softmaxed(q[:, :, rows], k, _rows_of(bias, rows))  # (6)
        dropped = dropout.backward(p, c_drop)  # the mask once more: p̃ = m p
        dv += dropped.swapaxes(-1, -2) @ do[:, :, rows]  # (2)
        dp = dropout.backward(do[:, :, rows] @ v.swapaxes(-1, -2), c_drop)  # (2), (3)
        ds = softmax.backward(dp, (p,))  # (3)
        if bias is not None:
            own = _rows_of(dbias, rows)
            own += _sum_to(ds, own.shape)  # (4)
        np.matmul(ds, k, out=dq[:, :, rows])  # (5)
        dk += ds.swapaxes(-1, -2) @ q[:, :, rows]  # (5)
    dq *= 1 / math.sqrt(q.shape[-1])
    return dq, dk, dv, dbias


def weights(cache: Cache) -> Array:
    """Return the attention weights (B, H, M, N) before dropout: each row sums to 1."""
    q, k, _, bias, chunks = cache
    ((_, kept, _), *others) = chunks
    return kept if not others else _softmaxed(q, k, bias)


def weights_backward(do: Array, cache: Cache) -> Array:
    """Return the gradient of the attention weights (B, H, M, N): steps (2) and (3) of `backward` alone."""
    _, _, v, _, chunks = cache
    return np.concatenate(
        [dropout.backward(do[:, :, rows] @ v.swapaxes(-1, -2), c_drop) for rows, _, c_drop in chunks], axis=2
    )  # (2), (3)


def _chunks(queries: int, size: int) -> Iterator[slice]:
    for start in range(0, queries, max(size, 1)):
        yield slice(start, min(start + max(size, 1), queries))


def _softmaxed(q: Array, k: Array, bias: Array | None) -> Array:
    scores = q @ k.swapaxes(-1, -2)
    if bias is not None:
        scores += bias
    return softmax.forward(scores)[0]


def _rows_of(bias: Array | None, rows: slice) -> Any:
    """The part of a bias that belongs to some queries; all of it where it is the same for every query."""
    return bias if bias is None or bias.ndim < 2 or bias.shape[-2] == 1 else bias[..., rows, :]


def _sum_to(array: Array, shape: tuple[int, ...]) -> Array:
    """Sum over the axes along which `shape` was broadcast to `array`."""
    summed = array.sum(axis=tuple(range(array.ndim - len(shape))))
    stretched = tuple(i for i, side in enumerate(shape) if side == 1 and summed.shape[i] > 1)
    return np.asarray(summed.sum(axis=stretched, keepdims=True))
