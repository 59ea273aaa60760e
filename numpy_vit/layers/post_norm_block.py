"""The transformer block of 2017: the norms come after the sums."""

from __future__ import annotations

import numpy as np

from numpy_vit.layers import attention, drop_path, layer_scale, layernorm, optional
from numpy_vit.layers.block import Config, init
from numpy_vit.layers.recording import Note, below, ignore
from numpy_vit.tree import Array, Cache, Params

__all__ = ["Config", "backward", "forward", "init"]  # parameters and choices are those of the pre-norm block


def forward(
    params: Params, x: Array, config: Config, rng: np.random.Generator | None = None, note: Note = ignore
) -> tuple[Array, Cache]:
    """Add what attention gathers and normalise the sum; the same with the MLP.

    x ← norm1(x + drop_path(ls1(attn(x)))),  x ← norm2(x + drop_path(ls2(mlp(x))))

    Parameters
    ----------
    params : norm1, attn, norm2, mlp; optionally ls1, ls2
    x : (B, N, D)

    Returns
    -------
    y : (B, N, D)

    Source: Vaswani et al. 2017, section 3.1; PyTorch's nn.TransformerEncoderLayer with norm_first=False.
    """
    h, c_attn = attention.forward(
        params["attn"], x, config.num_heads,
        eps=config.eps, attn_drop=config.attn_drop, proj_drop=config.proj_drop, rng=rng, note=below(note, "attn"),
    )  # fmt: skip
    note("attn", h)
    h, c_ls1 = optional.forward(layer_scale, params.get("ls1"), h)
    h, c_path1 = drop_path.forward(h, config.drop_path, rng)
    x, c_norm1 = layernorm.forward(params["norm1"], x + h, config.eps)
    note("norm1", x)

    h, c_mlp = config.ffn.forward(params["mlp"], x, config.act, config.proj_drop, rng, below(note, "mlp"))
    note("mlp", h)
    h, c_ls2 = optional.forward(layer_scale, params.get("ls2"), h)
    h, c_path2 = drop_path.forward(h, config.drop_path, rng)
    x, c_norm2 = layernorm.forward(params["norm2"], x + h, config.eps)
    note("norm2", x)
    return x, (config, c_attn, c_ls1, c_path1, c_norm1, c_mlp, c_ls2, c_path2, c_norm2)


def backward(dy: Array, cache: Cache, note: Note = ignore) -> tuple[Array, Params]:
    """Return dx and the gradients: forward upside-down.

    (1) y = norm2(s),  s = x' + g(x')   ⇒  ds by LayerNorm's backward, then dx' = ds + g'ᵀ ds
    (2) g = drop_path ∘ ls2 ∘ mlp
    (3) x' = norm1(t), t = x + f(x)     ⇒  dt by LayerNorm's backward, then dx = dt + f'ᵀ dt
    (4) f = drop_path ∘ ls1 ∘ attn

    Here every gradient passes two norms a block, which scale it: deep post-norm models need warm-up.
    """
    config, c_attn, c_ls1, c_path1, c_norm1, c_mlp, c_ls2, c_path2, c_norm2 = cache
    grads: Params = {}
    ds, grads["norm2"] = layernorm.backward(dy, c_norm2)  # (1)
    dh = drop_path.backward(ds, c_path2)  # (2)
    dh, grads["ls2"] = optional.backward(dh, c_ls2)
    note("mlp", dh)
    dh, grads["mlp"] = config.ffn.backward(dh, c_mlp)
    dx = ds + dh  # (1)

    dt, grads["norm1"] = layernorm.backward(dx, c_norm1)  # (3)
    dh = drop_path.backward(dt, c_path1)  # (4)
    dh, grads["ls1"] = optional.backward(dh, c_ls1)
    note("attn", dh)
    dh, _, grads["attn"] = attention.backward(dh, c_attn)
    dx = dt + dh  # (3)
    return dx, grads


def attention_cache(cache: Cache) -> Cache:
    """Return the part of the cache that is attention's, for attention.weights and attention.weights_backward."""
    c_attn: Cache = cache[1]
    return c_attn
