"""The transformer block with its norms before attention and MLP."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType

import numpy as np
from numpy.typing import DTypeLike

from numpy_vit.layers import attention, drop_path, gelu, layer_scale, layernorm, mlp, optional
from numpy_vit.layers.recording import Note, below, ignore
from numpy_vit.tree import Array, Cache, Params


@dataclass(frozen=True)
class Config:
    """What a block is besides its parameters; the other forms of the block take the same.

    `read` is for the readout block alone: how many leading tokens it returns.
    """

    num_heads: int
    eps: float = 1e-6
    ffn: ModuleType = mlp  # or swiglu
    act: ModuleType = gelu
    attn_drop: float = 0.0
    proj_drop: float = 0.0
    drop_path: float = 0.0
    read: int = 1


def init(
    dim: int,
    hidden: int,
    config: Config,
    rng: np.random.Generator,
    qkv_bias: bool = True,
    qk_norm: bool = False,
    init_values: float | None = None,
    dtype: DTypeLike = np.float32,
    head_dim: int | None = None,
) -> Params:
    """Return norm1, attn, norm2, mlp and, where `init_values` is given, the layer scales ls1 and ls2."""
    params: Params = {
        "norm1": layernorm.init(dim, dtype),
        "attn": attention.init(dim, config.num_heads, rng, qkv_bias, qk_norm, dtype, head_dim),
        "norm2": layernorm.init(dim, dtype),
        "mlp": config.ffn.init(dim, hidden, rng, dtype),
    }
    if init_values is not None:
        params["ls1"] = layer_scale.init(dim, init_values, dtype)
        params["ls2"] = layer_scale.init(dim, init_values, dtype)
    return params


def forward(
    params: Params, x: Array, config: Config, rng: np.random.Generator | None = None, note: Note = ignore
) -> tuple[Array, Cache]:
    """Add what attention gathers, then what the MLP computes, each from a normalised copy of the stream.

    x ← x + drop_path(ls1(attn(norm1(x)))),  x ← x + drop_path(ls2(mlp(norm2(x))))

    Parameters
    ----------
    params : norm1, attn, norm2, mlp; optionally ls1, ls2
    x : (B, N, D)

    Returns
    -------
    y : (B, N, D)

    Source: Dosovitskiy et al. 2021, equations 2 and 3; timm's Block.
    """
    h, c_norm1 = layernorm.forward(params["norm1"], x, config.eps)
    note("norm1", h)
    h, c_attn = attention.forward(
        params["attn"], h, config.num_heads,
        eps=config.eps, attn_drop=config.attn_drop, proj_drop=config.proj_drop, rng=rng, note=below(note, "attn"),
    )  # fmt: skip
    note("attn", h)
    h, c_ls1 = optional.forward(layer_scale, params.get("ls1"), h)
    h, c_path1 = drop_path.forward(h, config.drop_path, rng)
    x = x + h

    h, c_norm2 = layernorm.forward(params["norm2"], x, config.eps)
    note("norm2", h)
    h, c_mlp = config.ffn.forward(params["mlp"], h, config.act, config.proj_drop, rng, below(note, "mlp"))
    note("mlp", h)
    h, c_ls2 = optional.forward(layer_scale, params.get("ls2"), h)
    h, c_path2 = drop_path.forward(h, config.drop_path, rng)
    x = x + h
    return x, (config, c_norm1, c_attn, c_ls1, c_path1, c_norm2, c_mlp, c_ls2, c_path2)


def backward(dy: Array, cache: Cache, note: Note = ignore) -> tuple[Array, Params]:
    """Return dx and the gradients: forward upside-down.

    (1) y = x' + g(x')  ⇒  dx' = dy + g'ᵀ dy: the gradient passes the sum unchanged, and once more through g
    (2) g = drop_path ∘ ls2 ∘ mlp ∘ norm2: their backwards in the opposite order
    (3) x' = x + f(x)   ⇒  dx = dx' + f'ᵀ dx', with f = drop_path ∘ ls1 ∘ attn ∘ norm1

    The 1 in (1) and (3) is why deep pre-norm models train: some gradient always arrives unscaled.
    """
    config, c_norm1, c_attn, c_ls1, c_path1, c_norm2, c_mlp, c_ls2, c_path2 = cache
    grads: Params = {}
    dh = drop_path.backward(dy, c_path2)  # (2)
    dh, grads["ls2"] = optional.backward(dh, c_ls2)
    note("mlp", dh)
    dh, grads["mlp"] = config.ffn.backward(dh, c_mlp)
    dh, grads["norm2"] = layernorm.backward(dh, c_norm2)
    dx = dy + dh  # (1)

    dh = drop_path.backward(dx, c_path1)  # (3)
    dh, grads["ls1"] = optional.backward(dh, c_ls1)
    note("attn", dh)
    dh, _, grads["attn"] = attention.backward(dh, c_attn)
    dh, grads["norm1"] = layernorm.backward(dh, c_norm1)
    dx = dx + dh  # (3)
    return dx, grads


def attention_cache(cache: Cache) -> Cache:
    """Return the part of the cache that is attention's, for attention.weights and attention.weights_backward."""
    c_attn: Cache = cache[2]
    return c_attn
