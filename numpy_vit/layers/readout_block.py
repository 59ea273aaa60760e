"""The last pre-norm block, where only the leading tokens are read afterwards."""

from __future__ import annotations

import numpy as np

from numpy_vit.layers import drop_path, layer_scale, layernorm, optional, readout_attention
from numpy_vit.layers.block import Config, init
from numpy_vit.layers.recording import Note, below, ignore
from numpy_vit.tree import Array, Cache, Params

__all__ = ["Config", "backward", "forward", "init"]  # parameters and choices are those of the pre-norm block


def forward(
    params: Params, x: Array, config: Config, rng: np.random.Generator | None = None, note: Note = ignore
) -> tuple[Array, Cache]:
    """Return the first rows of what block.forward returns, as many as `config.read` says.

    The other tokens matter to these through keys and values alone.  So their queries, their projection and their MLP
    are not computed: of a block's products that leaves two parts in twelve.

    Parameters
    ----------
    params : norm1, attn, norm2, mlp; optionally ls1, ls2
    x : (B, N, D)

    Returns
    -------
    y : (B, R, D)

    Source: Dosovitskiy et al. 2021, equations 2 and 3, for the rows that equation 4 reads.
    """
    h, c_norm1 = layernorm.forward(params["norm1"], x, config.eps)
    note("norm1", h)
    h, c_attn = readout_attention.forward(
        params["attn"], h, config.num_heads, config.read, config.eps, config.attn_drop, config.proj_drop, rng
    )  # (B, R, D)
    note("attn", h)
    h, c_ls1 = optional.forward(layer_scale, params.get("ls1"), h)
    h, c_path1 = drop_path.forward(h, config.drop_path, rng)
    y = x[:, : config.read] + h

    h, c_norm2 = layernorm.forward(params["norm2"], y, config.eps)
    note("norm2", h)
    h, c_mlp = config.ffn.forward(params["mlp"], h, config.act, config.proj_drop, rng, below(note, "mlp"))
    note("mlp", h)
    h, c_ls2 = optional.forward(layer_scale, params.get("ls2"), h)
    h, c_path2 = drop_path.forward(h, config.drop_path, rng)
    y = y + h
    return y, (config, c_norm1, c_attn, c_ls1, c_path1, c_norm2, c_mlp, c_ls2, c_path2)


def backward(dy: Array, cache: Cache, note: Note = ignore) -> tuple[Array, Params]:
    """Return dx and the gradients: forward upside-down.

    (1) y = y' + g(y')          ⇒  dy' = dy + g'ᵀ dy, with g = drop_path ∘ ls2 ∘ mlp ∘ norm2
    (2) y' = x_{:R} + f(x)      ⇒  dx = f'ᵀ dy' for every token, with f = drop_path ∘ ls1 ∘ attn ∘ norm1
    (3) the first R tokens also go on unchanged  ⇒  their dx has the part dy'
    """
    config, c_norm1, c_attn, c_ls1, c_path1, c_norm2, c_mlp, c_ls2, c_path2 = cache
    grads: Params = {}
    dh = drop_path.backward(dy, c_path2)
    dh, grads["ls2"] = optional.backward(dh, c_ls2)
    note("mlp", dh)
    dh, grads["mlp"] = config.ffn.backward(dh, c_mlp)
    dh, grads["norm2"] = layernorm.backward(dh, c_norm2)
    dy = dy + dh  # (1)

    dh = drop_path.backward(dy, c_path1)  # (2)
    dh, grads["ls1"] = optional.backward(dh, c_ls1)
    note("attn", dh)
    dh, grads["attn"] = readout_attention.backward(dh, c_attn)
    dx, grads["norm1"] = layernorm.backward(dh, c_norm1)
    dx[:, : config.read] += dy  # (3)
    return dx, grads
