"""Small examples of every layer, with random parameters, and of every model: what the catalogue hands out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

from numpy_vit import tree
from numpy_vit.checks.case import SEED, Case, normal
from numpy_vit.checks.loss_examples import cross_entropy_cases, kl_divergence_cases, mse_cases
from numpy_vit.checks.mae_examples import mae_cases, mask_tokens_cases, masked_patch_loss_cases, random_masking_cases
from numpy_vit.checks.model_examples import VIT_CHOICES, deit_cases, vit_cases, vit_example
from numpy_vit.layers import attention, block, gelu_tanh, quick_gelu, readout_block, swiglu
from numpy_vit.tree import Array, Params

__all__ = ["EXAMPLES", "MODELS", "VIT_CHOICES", "Case", "vit_example"]


def _randomised(params: Params, rng: np.random.Generator) -> Params:
    """Move every parameter away from its start by a normal number: a gamma of 1 hides half of LayerNorm's faults."""
    shaken: Params = tree.map(lambda leaf: leaf + rng.standard_normal(leaf.shape), params)
    return shaken


def _plain(layer: ModuleType, rng: np.random.Generator) -> list[Case]:
    """A layer of one input and no parameters, on the last axis or entry by entry."""
    return [Case("(3, 4, 5)", layer.forward, layer.backward, None, 1.5 * normal(rng, 3, 4, 5))]


def _linear(layer: ModuleType, rng: np.random.Generator) -> list[Case]:
    params = _randomised(layer.init(4, 6, rng, dtype=np.float64), rng)
    square = _randomised(layer.init(5, 5, rng, bias=False, dtype=np.float64), rng)
    return [
        Case("(2, 3, 4) -> 6", layer.forward, layer.backward, params, normal(rng, 2, 3, 4)),
        Case("(3, 5) -> 5, no bias", layer.forward, layer.backward, square, normal(rng, 3, 5)),
    ]


def _patchify(layer: ModuleType, rng: np.random.Generator) -> list[Case]:
    forward = partial(layer.forward, patch=(2, 3))
    return [Case("(2, 2, 4, 6), patch 2x3", forward, layer.backward, None, normal(rng, 2, 2, 4, 6))]


def _patch_embed(layer: ModuleType, rng: np.random.Generator) -> list[Case]:
    made = [
        ("patch 2x3", layer.init(2, 5, (2, 3), rng, dtype=np.float64)),
        ("patch 2x3, no bias, norm", layer.init(2, 5, (2, 3), rng, bias=False, norm=True, dtype=np.float64)),
        ("patch 2x3, norm of the pixels", layer.init(2, 5, (2, 3), rng, pre_norm=True, dtype=np.float64)),
    ]
    return [
        Case(f"(2, 2, 4, 6), {what}", layer.forward, layer.backward, _randomised(params, rng), normal(rng, 2, 2, 4, 6))
        for what, params in made
    ]


def _prefix_tokens(layer: ModuleType, rng: np.random.Generator) -> list[Case]:
    params = _randomised(layer.init(5, True, 2, rng, np.float64), rng)
    return [Case("class token, 2 registers", layer.forward, layer.backward, params, normal(rng, 3, 4, 5))]


def _position_table(layer: ModuleType, rng: np.random.Generator) -> list[Case]:
    return [
        Case(
            f"(3, 6, 5), {rows} rows", layer.forward, layer.backward,
            _randomised(layer.init(rows, 5, rng, np.float64), rng), normal(rng, 3, 6, 5),
        )
        for rows in (6, 4)
    ]  # fmt: skip


def _layernorm(layer: ModuleType, rng: np.random.Generator) -> list[Case]:
    params = _randomised(layer.init(7, np.float64), rng)
    forward = partial(layer.forward, eps=0.1)  # large enough to be seen
    return [
        Case("(2, 3, 7)", layer.forward, layer.backward, params, 2 * normal(rng, 2, 3, 7)),
        Case("(2, 3, 7), eps 0.1", forward, layer.backward, params, normal(rng, 2, 3, 7)),
    ]


def _dot_product_attention(layer: ModuleType, rng: np.random.Generator) -> list[Case]:
    q, k, v = normal(rng, 2, 3, 4, 2), normal(rng, 2, 3, 5, 2), normal(rng, 2, 3, 5, 2)

    def forward(x: tuple[Array, ...], drop: float = 0.0, at_once: int = 1000) -> Any:
        return layer.forward(*x, drop=drop, rng=np.random.default_rng(SEED), at_once=at_once)

    def backward(do: Array, cache: Any) -> Any:
        return tuple(dx for dx in layer.backward(do, cache) if dx is not None)

    biases = [normal(rng, 2, 3, 4, 5), normal(rng, 3, 1, 5)]
    return [
        Case("q (2, 3, 4, 2), k, v (2, 3, 5, 2)", forward, backward, None, (q, k, v)),
        *(Case(f"bias {bias.shape}", forward, backward, None, (q, k, v, bias)) for bias in biases),
        Case("dropout 0.4", partial(forward, drop=0.4), backward, None, (q, k, v)),
        Case("3 queries at a time", partial(forward, drop=0.4, at_once=90), backward, None, (q, k, v, biases[0])),
    ]


def _attention(layer: ModuleType, rng: np.random.Generator) -> list[Case]:
    x, bias = normal(rng, 2, 4, 6), normal(rng, 3, 4, 4)

    def forward(params: Params, x: tuple[Array, ...], drop: float = 0.0) -> Any:
        return layer.forward(params, x[0], 3, *x[1:], attn_drop=drop, proj_drop=drop, rng=np.random.default_rng(SEED))

    def backward(dy: Array, cache: Any) -> Any:
        dx, dbias, grads = layer.backward(dy, cache)
        return ((dx,) if dbias is None else (dx, dbias)), grads

    plain = _randomised(layer.init(6, 3, rng, dtype=np.float64), rng)
    normed = _randomised(layer.init(6, 3, rng, qkv_bias=False, qk_norm=True, dtype=np.float64), rng)
    wide = _randomised(layer.init(6, 3, rng, head_dim=4, dtype=np.float64), rng)
    return [
        Case("(2, 4, 6), 3 heads", forward, backward, plain, (x,)),
        Case("3 heads of width 4", forward, backward, wide, (x,)),
        Case("bias (3, 4, 4)", forward, backward, plain, (x, bias)),
        Case("q and k norm, no qkv bias", forward, backward, normed, (x,)),
        Case("dropout 0.3", partial(forward, drop=0.3), backward, plain, (x,)),
    ]


def _readout_attention(layer: ModuleType, rng: np.random.Generator) -> list[Case]:
    def forward(params: Params, x: Array, read: int = 1, drop: float = 0.0) -> Any:
        return layer.forward(params, x, 3, read, attn_drop=drop, proj_drop=drop, rng=np.random.default_rng(SEED))

    plain = _randomised(attention.init(6, 3, rng, dtype=np.float64), rng)
    normed = _randomised(attention.init(6, 3, rng, qkv_bias=False, qk_norm=True, head_dim=4, dtype=np.float64), rng)
    x = normal(rng, 2, 4, 6)
    return [
        Case("(2, 4, 6), 3 heads, 1 token read", forward, layer.backward, plain, x),
        Case("2 tokens read, q and k norm, heads of width 4", partial(forward, read=2), layer.backward, normed, x),
        Case("dropout 0.3", partial(forward, drop=0.3), layer.backward, plain, x),
    ]


def _mlp(layer: ModuleType, rng: np.random.Generator) -> list[Case]:
    params = _randomised(layer.init(4, 6, rng, np.float64), rng)
    x = normal(rng, 2, 3, 4)

    def dropped(params: Params, x: Array) -> Any:
        return layer.forward(params, x, drop=0.3, rng=np.random.default_rng(SEED))

    return [
        Case("(2, 3, 4), hidden 6", layer.forward, layer.backward, params, x),
        Case("dropout 0.3", dropped, layer.backward, params, x),
    ]


def _dropping(layer: ModuleType, rng: np.random.Generator) -> list[Case]:
    def forward(x: Array) -> Any:
        return layer.forward(x, 0.4, np.random.default_rng(SEED))

    return [
        Case("(4, 3, 5), rate 0.4", forward, layer.backward, None, normal(rng, 4, 3, 5)),
        Case("evaluation", partial(layer.forward, rate=0.4, rng=None), layer.backward, None, normal(rng, 4, 3, 5)),
    ]


def _patch_dropout(layer: ModuleType, rng: np.random.Generator) -> list[Case]:
    def forward(x: Array, prefix: int) -> Any:
        return layer.forward(x, 0.5, prefix, np.random.default_rng(SEED))

    return [
        Case(
            f"(3, {prefix} + 5, 4), rate 0.5", partial(forward, prefix=prefix), layer.backward, None,
            normal(rng, 3, prefix + 5, 4),
        )
        for prefix in (0, 2)
    ]  # fmt: skip


def _layer_scale(layer: ModuleType, rng: np.random.Generator) -> list[Case]:
    params = _randomised(layer.init(5, dtype=np.float64), rng)
    return [Case("(3, 4, 5)", layer.forward, layer.backward, params, normal(rng, 3, 4, 5))]


def _block(layer: ModuleType, rng: np.random.Generator) -> list[Case]:
    def case(what: str, config: block.Config, **init: Any) -> Case:
        params = _randomised(layer.init(6, 5, config, rng, dtype=np.float64, **init), rng)

        def forward(params: Params, x: Array) -> Any:
            return layer.forward(params, x, config, np.random.default_rng(SEED))

        return Case(what, forward, layer.backward, params, normal(rng, 3, 4, 6))

    dropping = block.Config(num_heads=2, attn_drop=0.2, proj_drop=0.3, drop_path=0.4)
    return [
        case("(3, 4, 6), 2 heads, hidden 5", block.Config(num_heads=2)),
        case("layer scale, q and k norm", block.Config(num_heads=3, act=gelu_tanh), init_values=1.0, qk_norm=True),
        case("SwiGLU, no qkv bias", block.Config(num_heads=2, ffn=swiglu, act=quick_gelu), qkv_bias=False),
        case("dropout, drop path", dropping, init_values=0.5),
    ]


def _encoder(layer: ModuleType, rng: np.random.Generator) -> list[Case]:
    configs = [block.Config(num_heads=2), block.Config(num_heads=2, drop_path=0.4), block.Config(num_heads=3)]
    params = tree.map(
        lambda leaf: leaf + 0.3 * rng.standard_normal(leaf.shape), layer.init(6, 5, configs, rng, np.float64)
    )

    def case(what: str, *forms: ModuleType) -> Case:
        def forward(params: Params, x: Array) -> Any:
            return layer.forward(params, x, forms, configs, np.random.default_rng(SEED))

        return Case(what, forward, layer.backward, params, normal(rng, 3, 4, 6), 2)

    return [
        case("(3, 4, 6), 3 blocks", block, block, block),
        case("the last one for the token read", block, block, readout_block),
    ]


def _mean_pool(layer: ModuleType, rng: np.random.Generator) -> list[Case]:
    forward = partial(layer.forward, first=2)
    return [Case("(3, 6, 5), 2 prefix tokens", forward, layer.backward, None, normal(rng, 3, 6, 5))]


def _attention_pool(layer: ModuleType, rng: np.random.Generator) -> list[Case]:
    params = _randomised(layer.init(6, 5, rng, np.float64), rng)

    def forward(params: Params, x: Array) -> Any:
        return layer.forward(params, x, block.Config(num_heads=2), first=1)

    return [Case("(3, 5, 6), 1 prefix token", forward, layer.backward, params, normal(rng, 3, 5, 6))]


def _pre_logits(layer: ModuleType, rng: np.random.Generator) -> list[Case]:
    params = _randomised(layer.init(5, 4, rng, np.float64), rng)
    return [Case("(3, 5) -> 4", layer.forward, layer.backward, params, normal(rng, 3, 5))]


EXAMPLES: dict[str, Callable[[ModuleType, np.random.Generator], list[Case]]] = {
    "linear": _linear,
    "patchify": _patchify,
    "patch_embed": _patch_embed,
    "prefix_tokens": _prefix_tokens,
    "position_table": _position_table,
    "layernorm": _layernorm,
    "softmax": _plain,
    "dot_product_attention": _dot_product_attention,
    "attention": _attention,
    "readout_attention": _readout_attention,
    "gelu": _plain,
    "gelu_tanh": _plain,
    "quick_gelu": _plain,
    "relu": _plain,
    "mlp": _mlp,
    "silu": _plain,
    "swiglu": _mlp,
    "dropout": _dropping,
    "drop_path": _dropping,
    "patch_dropout": _patch_dropout,
    "layer_scale": _layer_scale,
    "block": _block,
    "post_norm_block": _block,
    "readout_block": _block,
    "encoder": _encoder,
    "token_pool": _plain,
    "mean_pool": _mean_pool,
    "token_and_mean_pool": _mean_pool,
    "attention_pool": _attention_pool,
    "tanh": _plain,
    "pre_logits": _pre_logits,
    "cross_entropy": cross_entropy_cases,
    "kl_divergence": kl_divergence_cases,
    "mse": mse_cases,
    "random_masking": random_masking_cases,
    "mask_tokens": mask_tokens_cases,
    "masked_patch_loss": masked_patch_loss_cases,
    "vit": vit_cases,
    "deit": deit_cases,
    "mae": mae_cases,
}
MODELS = ("vit", "deit", "mae")
