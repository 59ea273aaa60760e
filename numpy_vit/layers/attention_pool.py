"""Pooling by attention (MAP): a learned query gathers from all tokens."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import DTypeLike

from numpy_vit.layers import dot_product_attention, initial, layernorm, linear, mlp
from numpy_vit.layers.attention import merge_heads, split_heads
from numpy_vit.layers.block import Config
from numpy_vit.tree import Array, Cache, Params


def init(dim: int, hidden: int, rng: np.random.Generator, dtype: DTypeLike = np.float32) -> Params:
    """Return latent (1, 1, D), q (D -> D), kv (D -> 2D, keys first), proj, norm and mlp."""
    return {
        "latent": initial.truncated((1, 1, dim), rng, 1 / math.sqrt(dim), dtype),
        "q": linear.init(dim, dim, rng, dtype=dtype),
        "kv": linear.init(dim, 2 * dim, rng, dtype=dtype),
        "proj": linear.init(dim, dim, rng, dtype=dtype),
        "norm": layernorm.init(dim, dtype),
        "mlp": mlp.init(dim, hidden, rng, dtype),
    }


def forward(params: Params, x: Array, config: Config, first: int = 0) -> tuple[Array, Cache]:
    """Return z + mlp(norm(z)) with z = proj(attention(q(latent), [k, v](x))).

    Parameters
    ----------
    params : latent, q, kv, proj, norm, mlp
    x : (B, T+N, D)
    config : heads, eps and activation of a block
    first : T, the number of prefix tokens, which do not take part

    Returns
    -------
    y : (B, D)

    Source: Zhai et al. 2022, section 2.2 (after Lee et al. 2019); timm's AttentionPoolLatent. The sum starts at z,
    not at the latent.
    """
    B, D = len(x), x.shape[-1]
    latent, c_q = linear.forward(params["q"], params["latent"])  # (1, 1, D): the same query for every sample
    kv, c_kv = linear.forward(params["kv"], x[:, first:])  # (B, N, 2D)
    q = split_heads(np.broadcast_to(latent, (B, 1, D)), config.num_heads)  # (B, H, 1, d)
    k, v = (split_heads(half, config.num_heads) for half in (kv[..., :D], kv[..., D:]))  # (B, H, N, d)
    o, c_core = dot_product_attention.forward(q, k, v)
    z, c_proj = linear.forward(params["proj"], merge_heads(o))  # (B, 1, D)
    h, c_norm = layernorm.forward(params["norm"], z, config.eps)
    h, c_mlp = mlp.forward(params["mlp"], h, config.act)
    y = (z + h)[:, 0]
    return y, (x.shape, first, config, c_q, c_kv, c_core, c_proj, c_norm, c_mlp)


def backward(dy: Array, cache: Cache) -> tuple[Array, Params]:
    """Return dx and the gradients: forward upside-down.

    (1) y = z + mlp(norm(z))              ⇒  dz = dy + normᵀ(mlpᵀ(dy))
    (2) z = proj(merge(attention(q, k, v)))  ⇒  dq, dk, dv
    (3) [k, v] = x W_kvᵀ + b              ⇒  d[k, v] side by side, then dx; zero for the prefix tokens
    (4) one query serves the whole batch  ⇒  its gradient is summed over the samples before it goes on
    (5) q = latent W_qᵀ + b               ⇒  dlatent, dW_q, db_q
    """
    shape, first, config, c_q, c_kv, c_core, c_proj, c_norm, c_mlp = cache
    grads: Params = {}
    dz = dy[:, None]
    dh, grads["mlp"] = mlp.backward(dz, c_mlp)
    dh, grads["norm"] = layernorm.backward(dh, c_norm)
    dz = dz + dh  # (1)
    do, grads["proj"] = linear.backward(dz, c_proj)
    dq, dk, dv, _ = dot_product_attention.backward(split_heads(do, config.num_heads), c_core)  # (2)
    dkv = np.concatenate([merge_heads(dk), merge_heads(dv)], axis=-1)
    dx = np.zeros(shape, dy.dtype)
    dx[:, first:], grads["kv"] = linear.backward(dkv, c_kv)  # (3)
    dlatent = merge_heads(dq).sum(axis=0, keepdims=True)  # (4)
    grads["latent"], grads["q"] = linear.backward(dlatent, c_q)  # (5)
    return dx, grads
