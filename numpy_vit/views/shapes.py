"""The shapes of a model's parameters and intermediates, from its configuration alone: nothing is allocated."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TypeAlias

from numpy_vit.models import deit
from numpy_vit.models.vit_config import Config

Shape: TypeAlias = tuple[int, ...]
Shapes: TypeAlias = dict[str, Shape]


def parameter_shapes(config: Config) -> Shapes:
    """Return the name and shape of every parameter that the model's `init` makes, in its order."""
    D, F = config.embed_dim, config.hidden
    shapes: Shapes = {}
    if config.class_token:
        shapes["cls_token"] = (1, 1, D)
    if config.reg_tokens:
        shapes["reg_token"] = (1, config.reg_tokens, D)
    if config.pos_embed == "learned":
        rows = config.num_patches + (0 if config.no_embed_class else config.num_prefix_tokens)
        shapes["pos_embed"] = (1, rows, D)
    shapes["patch_embed.proj.weight"] = (D, config.in_chans, *config.patch)
    if config.patch_bias:
        shapes["patch_embed.proj.bias"] = (D,)
    if config.patch_norm:
        shapes |= _norm("patch_embed.norm", D)
    if config.patch_pre_norm:
        shapes |= _norm("patch_embed.pre_norm", config.in_chans * math.prod(config.patch))
    if config.norm_pre:
        shapes |= _norm("norm_pre", D)
    for i in range(config.depth):
        shapes |= {f"blocks.{i}.{name}": shape for name, shape in _block(config).items()}
    if config.final_norm:
        shapes |= _norm("fc_norm" if config.norm_after_pool else "norm", D)
    if config.global_pool == "map":
        shapes |= {"attn_pool.latent": (1, 1, D), **_linear("attn_pool.q", D, D), **_linear("attn_pool.kv", D, 2 * D)}
        shapes |= {**_linear("attn_pool.proj", D, D), **_norm("attn_pool.norm", D)}
        shapes |= {**_linear("attn_pool.mlp.fc1", D, F), **_linear("attn_pool.mlp.fc2", F, D)}
    if config.pre_logits:
        shapes |= _linear("pre_logits.fc", config.pooled_dim, config.pre_logits)
    if config.num_classes:
        shapes |= _linear("head", config.pre_logits or config.pooled_dim, config.num_classes)
    if isinstance(config, deit.Config):
        shapes["dist_token"] = (1, 1, D)
        shapes |= _linear("head_dist", D, config.num_classes) if config.num_classes else {}
    return shapes


def intermediate_shapes(config: Config) -> Shapes:
    """Return the name and shape, for one image, of everything that the model's `forward` records, in its order.

    The names are those of timm's modules.
    """
    D, N = config.embed_dim, config.num_patches
    tokens = (1, config.num_prefix_tokens + N, D)
    shapes: Shapes = {"patch_embed": (1, N, D), "pos_drop": tokens, "norm_pre": tokens}
    for i in range(config.depth):
        shapes |= {f"blocks.{i}{name}": shape for name, shape in _inside(config)}
    if isinstance(config, deit.Config):
        logits = (1, config.num_classes or D)
        return shapes | {"norm": tokens, "head": logits, "head_dist": logits}
    P = config.pooled_dim
    shapes |= {"norm": tokens, "fc_norm": (1, P), "pre_logits": (1, config.pre_logits or P)}
    return shapes | {"logits": (1, config.num_classes or config.pre_logits or P)}


def head_width(config: Config) -> int:
    """Return d, the width of each attention head."""
    return config.embed_dim // config.num_heads if config.head_dim is None else config.head_dim


def attention_width(config: Config) -> int:
    """Return H · d, the width of all heads side by side; D as a rule."""
    return config.embed_dim if config.head_dim is None else config.num_heads * config.head_dim


def _block(config: Config) -> Shapes:
    D, F, d = config.embed_dim, config.hidden, head_width(config)
    inner = attention_width(config)
    shapes = {**_norm("norm1", D), **_linear("attn.qkv", D, 3 * inner)}
    if not config.qkv_bias:
        del shapes["attn.qkv.bias"]
    if config.qk_norm:
        shapes |= {**_norm("attn.q_norm", d), **_norm("attn.k_norm", d)}
    shapes |= {**_linear("attn.proj", inner, D), **_norm("norm2", D)}
    shapes |= {**_linear("mlp.fc1", D, 2 * F if config.swiglu else F), **_linear("mlp.fc2", F, D)}
    if config.init_values is not None:
        shapes |= {"ls1.gamma": (D,), "ls2.gamma": (D,)}
    return shapes


def _inside(config: Config) -> Iterator[tuple[str, Shape]]:
    """What one block records, in its order; the block's own output has the name ""."""
    S, D, F = config.num_prefix_tokens + config.num_patches, config.embed_dim, config.hidden
    attention = [(".attn.qkv", (1, S, 3 * attention_width(config))), (".attn.proj", (1, S, D)), (".attn", (1, S, D))]
    feed = [(".mlp.fc1", (1, S, 2 * F if config.swiglu else F)), (".mlp.act", (1, S, F))]
    feed += [(".mlp.fc2", (1, S, D)), (".mlp", (1, S, D))]
    norm1, norm2 = (".norm1", (1, S, D)), (".norm2", (1, S, D))
    pre = [norm1, *attention, norm2, *feed]
    yield from pre if config.block == "pre_norm" else [*attention, norm1, *feed, norm2]
    yield "", (1, S, D)


def _linear(name: str, inputs: int, outputs: int) -> Shapes:
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}


def _norm(name: str, dim: int) -> Shapes:
    return {f"{name}.weight": (dim,), f"{name}.bias": (dim,)}
