"""The Vision Transformer of Dosovitskiy et al. 2021, "An image is worth 16x16 words".

Shapes: images (B, C, Y, X), N patches, T prefix tokens, width D, classes K.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import DTypeLike

from numpy_vit.layers import (
    attention_pool,
    block,
    dropout,
    encoder,
    layernorm,
    linear,
    mean_pool,
    optional,
    patch_dropout,
    patch_embed,
    position_table,
    pre_logits,
    prefix_tokens,
    sincos,
    token_and_mean_pool,
    token_pool,
)
from numpy_vit.layers.recording import Note, Take, ignore, into
from numpy_vit.models.vit_config import ACTIVATIONS, Config
from numpy_vit.tree import Array, Cache, Params

__all__ = [
    "Config", "attention_gradients", "attention_weights", "backward", "embed", "embed_backward", "forward", "hand_over",
    "head", "head_backward", "init", "predict",
]  # fmt: skip


def init(config: Config, rng: np.random.Generator, dtype: DTypeLike = np.float32) -> Params:
    """Return a model's parameters before training, under timm's names.

    Source: timm's VisionTransformer and its init_weights_vit_timm: linear weights and positions are normal of
    deviation 0.02, tokens of deviation 1e-6, the patch projection's weight uniform as in PyTorch's convolution; all
    biases are zero, that of the projection too, which timm leaves uniform.
    """
    D = config.embed_dim
    params = prefix_tokens.init(D, config.class_token, config.reg_tokens, rng, dtype)
    if config.pos_embed == "learned":
        rows = config.num_patches + (0 if config.no_embed_class else config.num_prefix_tokens)
        params |= position_table.init(rows, D, rng, dtype)
    params["patch_embed"] = patch_embed.init(
        config.in_chans, D, config.patch, rng, config.patch_bias, config.patch_norm, dtype, config.patch_pre_norm
    )
    if config.norm_pre:
        params["norm_pre"] = layernorm.init(D, dtype)
    params["blocks"] = [
        block.init(
            D, config.hidden, spec, rng, config.qkv_bias, config.qk_norm, config.init_values, dtype, config.head_dim
        )
        for spec in config.blocks
    ]
    if config.final_norm:
        params["fc_norm" if config.norm_after_pool else "norm"] = layernorm.init(D, dtype)
    if config.global_pool == "map":
        params["attn_pool"] = attention_pool.init(D, config.hidden, rng, dtype)
    if config.pre_logits:
        params["pre_logits"] = pre_logits.init(config.pooled_dim, config.pre_logits, rng, dtype)
    if config.num_classes:
        params["head"] = linear.init(config.pre_logits or config.pooled_dim, config.num_classes, rng, dtype=dtype)
    return params


def forward(
    params: Params,
    images: Array,
    config: Config,
    rng: np.random.Generator | None = None,
    record: dict[str, Array] | None = None,
) -> tuple[Array, Cache]:
    """Return the logits of a batch of images.

    Parameters
    ----------
    params : as from `init`, in the dtype in which everything is computed
    images : (B, C, Y, X)
    rng : draws dropout and drop path; None turns them off
    record : where given, receives every intermediate under the name of timm's module that computes it, for every
        token; without it the last block computes no more than is read

    Returns
    -------
    logits : (B, K), or features (B, D) for a model without a head

    Raises
    ------
    ValueError : images of another shape than the configuration says.

    Source: Dosovitskiy et al. 2021, equations 1 to 4.
    """
    note = into(record)
    x, c_embed = embed(params, images, config, rng, note)  # (B, T+N, D)
    x, c_blocks = encoder.forward(params["blocks"], x, config.block_forms(record is not None), config.blocks, rng, note)
    x, c_head = head(params, x, config, rng, note)  # (B, K)
    return x, (c_embed, c_blocks, c_head)


def backward(
    dlogits: Array,
    cache: Cache,
    input_grad: bool = False,
    take: Take | None = None,
    record: dict[str, Array] | None = None,
) -> tuple[Array | None, Params]:
    """Return dimages (None unless `input_grad` is true) and the gradients, under the parameters' names.

    (1) logits = head ∘ pool ∘ norm (x_L): the head's backwards in the opposite order give dx_L
    (2) x_L = encoder(x_0): dx_0 and the blocks' gradients
    (3) x_0 = [cls, patches] + positions: gradients of tokens, table and projection are summed over the batch

    Parameters
    ----------
    take : where given, receives the gradients part by part, as soon as they are known: those of block 3 as
        ("blocks.3", grads), the others at once as ("", grads).  Then none are returned
    record : where given, receives the gradients of the outputs of blocks, their attn and their mlp under the names of
        forward's record; that forward has to have had one too, or the last block's gradients are those of few tokens
    """
    c_embed, c_blocks, c_head = cache
    dx, grads = head_backward(dlogits, c_head)  # (1)
    dx, grads["blocks"] = encoder.backward(dx, c_blocks, take, note=into(record))  # (2)
    dimages, dembed = embed_backward(dx, c_embed, input_grad)  # (3)
    return dimages, hand_over(grads | dembed, take)


def hand_over(grads: Params, take: Take | None) -> Params:
    """Give what is left of the gradients to `take` and return none, or return them where nobody takes."""
    if take is None:
        return grads
    take("", grads)
    return {}


def attention_weights(cache: Cache) -> list[Array]:
    """Return each block's attention weights (B, H, T+N, T+N): row m says where token m looks, and sums to 1.

    Parameters
    ----------
    cache : of a `forward` that had a record: without one, the last block computes few tokens' rows
    """
    _, c_blocks, _ = cache
    return encoder.attention_weights(c_blocks)


def attention_gradients(cache: Cache, record: dict[str, Array]) -> list[Array]:
    """Return the gradient of each block's attention weights (B, H, T+N, T+N).

    Parameters
    ----------
    cache : of a `forward` that had a record
    record : what `backward` recorded
    """
    _, c_blocks, _ = cache
    return encoder.attention_gradients(c_blocks, record)


def predict(params: Params, images: Array, config: Config) -> Array:
    """Return the logits (B, K) without keeping what a backward would need: memory is that of one block."""
    x = encoder.predict(
        params["blocks"],
        embed(params, images, config, None, ignore)[0],  # a name for it here would keep it alive
        config.block_forms(every_token=False),
        config.blocks,
    )
    return head(params, x, config, None, ignore)[0]


def embed(
    params: Params, images: Array, config: Config, rng: np.random.Generator | None, note: Note
) -> tuple[Array, Cache]:
    """Images to tokens: x_0 = [cls, reg, patches] + positions."""
    if images.shape[1:] != (config.in_chans, *config.image):
        raise ValueError(
            f"images {images.shape} do not fit the model, which takes (B, {config.in_chans}, {config.image[0]}, "
            f"{config.image[1]}): convert or resize them, or change in_chans or image_size"
        )
    x, c_patch = patch_embed.forward(params["patch_embed"], images, config.norm_eps)  # (B, N, D)
    note("patch_embed", x)
    x, c_prefix = prefix_tokens.forward(params, x)  # (B, T+N, D)
    x, c_position = optional.forward(position_table, _positions(params, config), x)
    x, c_drop = dropout.forward(x, config.pos_drop_rate, rng)
    note("pos_drop", x)
    x, c_patch_drop = patch_dropout.forward(x, config.patch_drop_rate, config.num_prefix_tokens, rng)
    x, c_norm_pre = optional.forward(layernorm, params.get("norm_pre"), x, config.norm_eps)
    note("norm_pre", x)
    return x, (c_patch, c_prefix, c_position, c_drop, c_patch_drop, c_norm_pre, config.pos_embed == "learned")


def embed_backward(dx: Array, cache: Cache, input_grad: bool) -> tuple[Array | None, Params]:
    """Return dimages (None unless `input_grad` is true) and the gradients of tokens, positions and projection."""
    c_patch, c_prefix, c_position, c_drop, c_patch_drop, c_norm_pre, learned = cache
    grads: Params = {}
    dx, grads["norm_pre"] = optional.backward(dx, c_norm_pre)
    dx = patch_dropout.backward(dx, c_patch_drop)
    dx = dropout.backward(dx, c_drop)
    dx, dposition = optional.backward(dx, c_position)
    if learned:
        grads |= dposition
    dx, dprefix = prefix_tokens.backward(dx, c_prefix)
    grads |= dprefix
    dimages, grads["patch_embed"] = patch_embed.backward(dx, c_patch, input_grad)
    return dimages, grads


def _positions(params: Params, config: Config) -> Params:
    """The learned or computed position table, or nothing."""
    if config.pos_embed == "learned":
        return {"pos_embed": params["pos_embed"]}
    if config.pos_embed == "none":
        return {}
    return {"pos_embed": fixed_table(config, params["patch_embed"]["proj"]["weight"].dtype)}


@lru_cache(maxsize=8)
def fixed_table(config: Config, dtype: DTypeLike) -> Array:
    """Return the sin-cos table (1, R, D) of a configuration, read-only; prefix tokens with rows get zeros in 2-D."""
    prefix = 0 if config.no_embed_class else config.num_prefix_tokens
    if config.pos_embed == "sincos_1d":
        table = sincos.sincos_1d(prefix + config.num_patches, config.embed_dim)
    else:
        compute = sincos.sincos_2d_mae if config.pos_embed == "sincos_2d_mae" else sincos.sincos_2d_simple
        patches = compute(config.grid, config.embed_dim)
        table = np.concatenate([np.zeros((1, prefix, config.embed_dim)), patches], axis=1)
    table = table.astype(dtype)
    table.flags.writeable = False
    return table


def head(params: Params, x: Array, config: Config, rng: np.random.Generator | None, note: Note) -> tuple[Array, Cache]:
    """Tokens to logits: norm, pool (in this order or the other), head."""
    x, c_norm = optional.forward(layernorm, params.get("norm"), x, config.norm_eps)
    note("norm", x)
    x, c_pool = _pool(params, x, config)  # (B, D)
    x, c_fc_norm = optional.forward(layernorm, params.get("fc_norm"), x, config.norm_eps)
    note("fc_norm", x)
    x, c_pre_logits = optional.forward(pre_logits, params.get("pre_logits"), x)
    note("pre_logits", x)
    x, c_drop = dropout.forward(x, config.drop_rate, rng)
    x, c_head = optional.forward(linear, params.get("head"), x)  # (B, K)
    note("logits", x)
    return x, (config.global_pool, c_norm, c_pool, c_fc_norm, c_pre_logits, c_drop, c_head)


def head_backward(dlogits: Array, cache: Cache) -> tuple[Array, Params]:
    """Return the gradient of the tokens, and of what stands behind the blocks."""
    global_pool, c_norm, c_pool, c_fc_norm, c_pre_logits, c_drop, c_head = cache
    grads: Params = {}
    dx, grads["head"] = optional.backward(dlogits, c_head)
    dx = dropout.backward(dx, c_drop)
    dx, grads["pre_logits"] = optional.backward(dx, c_pre_logits)
    dx, grads["fc_norm"] = optional.backward(dx, c_fc_norm)
    dx, grads["attn_pool"] = _pool_backward(dx, c_pool, global_pool)
    dx, grads["norm"] = optional.backward(dx, c_norm)
    return dx, grads


def _pool(params: Params, x: Array, config: Config) -> tuple[Array, Cache]:
    if config.global_pool == "token":
        return token_pool.forward(x)
    if config.global_pool == "avg":
        return mean_pool.forward(x, 0 if config.pool_include_prefix else config.num_prefix_tokens)
    if config.global_pool == "token_avg":
        return token_and_mean_pool.forward(x, config.num_prefix_tokens)
    spec = block.Config(config.num_heads, config.norm_eps, act=ACTIVATIONS[config.act])
    return attention_pool.forward(params["attn_pool"], x, spec, config.num_prefix_tokens)


def _pool_backward(dy: Array, cache: Cache, global_pool: str) -> tuple[Array, Params]:
    if global_pool == "token":
        return token_pool.backward(dy, cache), {}
    if global_pool == "avg":
        return mean_pool.backward(dy, cache), {}
    if global_pool == "token_avg":
        return token_and_mean_pool.backward(dy, cache), {}
    return attention_pool.backward(dy, cache)
