"""Self-attention for the leading tokens alone: the last block's, where a class token is all that is read."""

from __future__ import annotations

import numpy as np

from numpy_vit.layers import dot_product_attention, dropout, layernorm, linear, optional
from numpy_vit.layers.attention import check_heads, merge_heads, split_heads
from numpy_vit.tree import Array, Cache, Params


def forward(
    params: Params,
    x: Array,
    num_heads: int,
    read: int = 1,
    eps: float = 1e-6,
    attn_drop: float = 0.0,
    proj_drop: float = 0.0,
    rng: np.random.Generator | None = None,
) -> tuple[Array, Cache]:
    """Let the first `read` tokens gather from all tokens: the first rows of attention.forward, and no others.

    Parameters
    ----------
    params : those of attention, in its layout: qkv, proj and, optionally, q_norm and k_norm
    x : (B, N, D)
    read : R, how many leading tokens ask
    eps : of q_norm and k_norm
    attn_drop, proj_drop : dropout of the attention weights and after the projection

    Returns
    -------
    y : (B, R, D)

    Raises
    ------
    ValueError : the number of heads does not divide the width of q, which is D as a rule.

    Source: Touvron et al. 2021, "Going deeper with Image Transformers", section 3, whose class attention this is; here
    it is no new architecture but what is left of the usual one when nobody looks at the other tokens.
    """
    inner = check_heads(len(params["qkv"]["weight"]) // 3, num_heads)
    q_params = {name: array[:inner] for name, array in params["qkv"].items()}
    kv_params = {name: array[inner:] for name, array in params["qkv"].items()}
    q, c_q = linear.forward(q_params, x[:, :read])  # (B, R, D)
    kv, c_kv = linear.forward(kv_params, x)  # (B, N, 2D)
    q = split_heads(q, num_heads)  # (B, H, R, d)
    k, v = (split_heads(half, num_heads) for half in (kv[..., :inner], kv[..., inner:]))  # (B, H, N, d)
    q, c_q_norm = optional.forward(layernorm, params.get("q_norm"), q, eps)
    k, c_k_norm = optional.forward(layernorm, params.get("k_norm"), k, eps)
    o, c_core = dot_product_attention.forward(q, k, v, None, attn_drop, rng)
    y, c_proj = linear.forward(params["proj"], merge_heads(o))  # (B, R, D)
    y, c_drop = dropout.forward(y, proj_drop, rng)
    return y, (num_heads, read, c_q, c_kv, c_q_norm, c_k_norm, c_core, c_proj, c_drop)


def backward(dy: Array, cache: Cache) -> tuple[Array, Params]:
    """Return dx and the gradients, in attention's layout: forward upside-down.

    (1) y = drop(proj(merge(o)))            ⇒  do, split again into heads, and proj's gradients
    (2) o = attention(q, k, v) of each head ⇒  dq for the R tokens that ask, dk and dv for all N
    (3) q and k may have been normalised    ⇒  LayerNorm's backward
    (4) [k, v] = W_kv x + b of every token  ⇒  dx, dW_kv, db_kv
    (5) q = W_q x + b of the first R tokens ⇒  their dx has a second part; dW_q, db_q
    (6) the rows of qkv are those of q, then k and v: so are the rows of its gradients
    """
    num_heads, read, c_q, c_kv, c_q_norm, c_k_norm, c_core, c_proj, c_drop = cache
    dy = dropout.backward(dy, c_drop)
    dy, dproj = linear.backward(dy, c_proj)  # (1)
    dq, dk, dv, _ = dot_product_attention.backward(split_heads(dy, num_heads), c_core)  # (2)
    dk, dk_norm = optional.backward(dk, c_k_norm)  # (3)
    dq, dq_norm = optional.backward(dq, c_q_norm)  # (3)
    dkv = np.concatenate([merge_heads(dk), merge_heads(dv)], axis=-1)
    dx, dkv_params = linear.backward(dkv, c_kv)  # (4)
    dx_read, dq_params = linear.backward(merge_heads(dq), c_q)
    dx[:, :read] += dx_read  # (5)
    dqkv = {name: np.concatenate([dq_params[name], dkv_params[name]]) for name in dq_params}  # (6)
    return dx, {"qkv": dqkv, "q_norm": dq_norm, "k_norm": dk_norm, "proj": dproj}
