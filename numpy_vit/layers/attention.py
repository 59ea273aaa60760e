"""Multi-head self-attention with timm's fused qkv projection."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

from numpy_vit.layers import dot_product_attention, dropout, layernorm, linear, optional
from numpy_vit.layers.recording import Note, ignore
from numpy_vit.tree import Array, Cache, Params


def init(
    dim: int,
    num_heads: int,
    rng: np.random.Generator,
    qkv_bias: bool = True,
    qk_norm: bool = False,
    dtype: DTypeLike = np.float32,
    head_dim: int | None = None,
) -> Params:
    """Return qkv (D -> 3 H d), proj (H d -> D) and, where `qk_norm` is true, q_norm and k_norm (d).

    The rows of qkv are those of q, then k, then v; inside each third, head after head.  d is `head_dim` or, as
    usual, D/H.
    """
    d = dim // num_heads if head_dim is None else head_dim
    inner = dim if head_dim is None else num_heads * d
    params: Params = {"qkv": linear.init(dim, 3 * inner, rng, qkv_bias, dtype)}
    if qk_norm:
        params["q_norm"] = layernorm.init(d, dtype)
        params["k_norm"] = layernorm.init(d, dtype)
    params["proj"] = linear.init(inner, dim, rng, dtype=dtype)
    return params


def forward(
    params: Params,
    x: Array,
    num_heads: int,
    bias: Array | None = None,
    eps: float = 1e-6,
    attn_drop: float = 0.0,
    proj_drop: float = 0.0,
    rng: np.random.Generator | None = None,
    note: Note = ignore,
) -> tuple[Array, Cache]:
    """Let every token gather from all tokens, in `num_heads` independent ways.

    Parameters
    ----------
    params : qkv, proj and, optionally, q_norm and k_norm
    x : (B, N, D)
    bias : added to the scores before the softmax, broadcast to (B, H, N, N)
    eps : of q_norm and k_norm
    attn_drop, proj_drop : dropout of the attention weights and after the projection

    Returns
    -------
    y : (B, N, D)

    Raises
    ------
    ValueError : the number of heads does not divide the width of q, which is D as a rule.

    Source: Vaswani et al. 2017, section 3.2.2; q and k norms Dehghani et al. 2023, equation 2; timm's Attention.
    """
    qkv, c_qkv = linear.forward(params["qkv"], x)  # (B, N, 3 H d), as a rule 3D
    check_heads(qkv.shape[-1] // 3, num_heads)
    note("qkv", qkv)
    q, k, v = _split(qkv, num_heads)  # each (B, H, N, d)
    q, c_q_norm = optional.forward(layernorm, params.get("q_norm"), q, eps)
    k, c_k_norm = optional.forward(layernorm, params.get("k_norm"), k, eps)
    o, c_core = dot_product_attention.forward(q, k, v, bias, attn_drop, rng)
    y = merge_heads(o)  # (B, N, H d)
    y, c_proj = linear.forward(params["proj"], y)
    note("proj", y)
    y, c_drop = dropout.forward(y, proj_drop, rng)
    return y, (num_heads, c_qkv, c_q_norm, c_k_norm, c_core, c_proj, c_drop)


def backward(dy: Array, cache: Cache) -> tuple[Array, Array | None, Params]:
    """Return dx, dbias (None where there was no bias) and the gradients: forward upside-down.

    (1) y = drop(proj(merge(o)))              ⇒  do, split again into heads, and proj's gradients
    (2) o = attention(q, k, v) of each head   ⇒  dq, dk, dv, dbias as derived in dot_product_attention.py
    (3) q and k may have been normalised      ⇒  LayerNorm's backward, one weight for all heads and tokens
    (4) q, k, v are three thirds of qkv(x): writing them side by side is the transpose of cutting them apart
    (5) qkv(x) = x Wᵀ + b                     ⇒  dx, dW, db of the linear layer

    The key third of db is zero, or with a k norm that norm's bias: a constant added to every key shifts all scores of a
    query alike, and softmax does not see it.
    """
    num_heads, c_qkv, c_q_norm, c_k_norm, c_core, c_proj, c_drop = cache
    dy = dropout.backward(dy, c_drop)
    dy, dproj = linear.backward(dy, c_proj)  # (1)
    do = split_heads(dy, num_heads)  # (1)
    dq, dk, dv, dbias = dot_product_attention.backward(do, c_core)  # (2)
    dk, dk_norm = optional.backward(dk, c_k_norm)  # (3)
    dq, dq_norm = optional.backward(dq, c_q_norm)  # (3)
    dqkv = _join(dq, dk, dv)  # (4)
    dx, dqkv_params = linear.backward(dqkv, c_qkv)  # (5)
    return dx, dbias, {"qkv": dqkv_params, "q_norm": dq_norm, "k_norm": dk_norm, "proj": dproj}


def weights(cache: Cache) -> Array:
    """Return the attention weights (B, H, N, N): row m says where query m looks, and sums to 1."""
    c_core = cache[4]
    return dot_product_attention.weights(c_core)


def weights_backward(dy: Array, cache: Cache) -> Array:
    """Return the gradient of the attention weights (B, H, N, N), of dy as `backward` takes it: steps (1) and (2)."""
    num_heads, _, _, _, c_core, c_proj, c_drop = cache
    do, _ = linear.backward(dropout.backward(dy, c_drop), c_proj)  # (1)
    return dot_product_attention.weights_backward(split_heads(do, num_heads), c_core)  # (2)


def check_heads(width: int, num_heads: int) -> int:
    """Return the width of q, k and v, or raise ValueError where it cannot be cut into so many heads."""
    if width % num_heads:
        raise ValueError(f"{num_heads} heads do not divide the width {width}")
    return width


def split_heads(x: Array, num_heads: int) -> Array:
    """Return x (B, N, D) as (B, H, N, d): head h owns the columns h·d … h·d+d-1."""
    B, N, D = x.shape
    heads: Array = x.reshape(B, N, num_heads, D // num_heads).transpose(0, 2, 1, 3)
    return heads


def merge_heads(x: Array) -> Array:
    """Return x (B, H, N, d) as (B, N, D): the inverse of `split_heads`."""
    B, H, N, d = x.shape
    tokens: Array = x.transpose(0, 2, 1, 3).reshape(B, N, H * d)
    return tokens


def _split(qkv: Array, num_heads: int) -> Array:
    B, N, _ = qkv.shape
    thirds: Array = qkv.reshape(B, N, 3, num_heads, -1).transpose(2, 0, 3, 1, 4)  # (3, B, H, N, d)
    return thirds


def _join(dq: Array, dk: Array, dv: Array) -> Array:
    B, H, N, d = dq.shape
    dqkv: Array = np.empty((B, N, 3, H, d), dq.dtype)
    for third, part in enumerate((dq, dk, dv)):
        dqkv[:, :, third] = part.transpose(0, 2, 1, 3)
    joined: Array = dqkv.reshape(B, N, 3 * H * d)
    return joined
