"""timm's VisionTransformer, whose names and shapes are ours; DeiT's, DINO's and MAE's encoders have them too."""

from __future__ import annotations

from dataclasses import replace

from numpy_vit.checkpoints.layouts.layout import Assumption, Layout
from numpy_vit.checkpoints.layouts.rules import (
    Rule,
    Tensors,
    fused_layer,
    layer,
    patches_channel_first,
    rename,
)
from numpy_vit.errors import CheckpointError
from numpy_vit.models import deit

NAME = "timm"

EMBEDDING = ("cls_token", "dist_token", "reg_token", "pos_embed", "patch_embed.proj.bias")
LAYERS = (
    "patch_embed.pre_norm",
    "patch_embed.norm",
    "norm_pre",
    "norm",
    "fc_norm",
    "pre_logits.fc",
    "head",
    "head_dist",
)
BLOCK = ("norm1", "attn.qkv", "attn.q_norm", "attn.k_norm", "attn.proj", "norm2", "mlp.fc1", "mlp.fc2")
POOL = ("q", "kv", "proj", "norm", "mlp.fc1", "mlp.fc2")
# The model's parts that have our names in every layout derived from timm's.
RULES: tuple[Rule, ...] = (
    *(rename(key, key) for key in EMBEDDING),
    *(rule for name in LAYERS for rule in layer(name, name)),
    *(rule for name in BLOCK for rule in layer(f"blocks.{{i}}.{name}", f"blocks.{{i}}.{name}")),
    *(rename(key, key) for key in ("blocks.{i}.ls1.gamma", "blocks.{i}.ls2.gamma", "attn_pool.latent")),
    *(rule for name in POOL for rule in layer(f"attn_pool.{name}", f"attn_pool.{name}")),
)
PATCH = "patch_embed.proj.weight"
UNBUILT = {  # timm's options that this library's blocks do not have
    "attn.norm.weight": "scale_attn_norm", "mlp.norm.weight": "scale_mlp_norm", "in_proj.weight": "parallel blocks",
    "attns.0.norm.weight": "parallel blocks", "norm11.weight": "parallel blocks",
}  # fmt: skip


def detect(tensors: Tensors) -> Layout | None:
    """Return the layout of tensors with timm's names, or None.

    Raises
    ------
    CheckpointError : a variant of timm's that this library has no blocks for.
    """
    if PATCH not in tensors:
        return None
    for key, option in UNBUILT.items():
        if f"blocks.0.{key}" in tensors:
            raise CheckpointError(f"blocks.0.{key}: timm's {option} cannot be represented here")
    if "blocks.0.attn.qkv.weight" not in tensors or tensors["blocks.0.attn.qkv.weight"].ndim != 2:
        return None
    layout = default()
    if tensors[PATCH].ndim == 2:  # timm's own files before 2020
        layout = replace(layout, rules=(*RULES, patches_channel_first(PATCH)), pixels=tensors[PATCH].shape[1])
    if "blocks.0.mlp.fc1_g.weight" in tensors:
        gated = fused_layer("blocks.{i}.mlp.fc1", ["blocks.{i}.mlp.fc1_g", "blocks.{i}.mlp.fc1_x"])
        layout = replace(layout, rules=(*layout.rules, *gated))
    if "dist_token" in tensors:
        return replace(layout, name="deit", family="deit", model=deit)
    if "norm_pre.weight" in tensors:
        why = "timm's CLIP models without quickgelu in their name; OpenAI's own weights need quick_gelu"
        return replace(layout, family="timm-clip", assumed=(Assumption("act", "gelu", why),))
    if "attn_pool.latent" in tensors:
        why = "timm's older SigLIP models; those of SigLIP 2 need gelu_tanh"
        return replace(layout, family="timm-siglip", assumed=(Assumption("act", "gelu", why),))
    return layout


def default() -> Layout:
    """Return the layout as it is written."""
    return Layout(NAME, "timm", (*RULES, rename(PATCH, PATCH)), ignored=(r"head_drop\..*", "mask_token"))
