"""Hugging Face's CLIP and SigLIP vision towers, alone or within the whole model."""

from __future__ import annotations

from numpy_vit.checkpoints.layouts.layout import Layout
from numpy_vit.checkpoints.layouts.rules import (
    Rule,
    Tensors,
    batched,
    fused_layer,
    layer,
    query_and_rest,
    rename,
    token,
    with_zero_bias,
)

NAME = "hf-clip"
_PREFIXES = ("vision_model.", "")
_IGNORED = (r"text_model\..*", r"text_projection\..*", "logit_scale", "logit_bias", r".*position_ids")

_ANCHORS = (
    "embeddings.patch_embedding.weight",
    "embeddings.class_embedding",
    "encoder.layers.0.self_attn.q_proj.weight",
)


def detect(tensors: Tensors) -> Layout | None:
    """Return the layout of a CLIP or SigLIP tower, or None."""
    for prefix in _PREFIXES:
        has = {name: f"{prefix}{name}" in tensors for name in _ANCHORS}
        if not has["embeddings.patch_embedding.weight"] or not has["encoder.layers.0.self_attn.q_proj.weight"]:
            continue
        if has["embeddings.class_embedding"]:
            return clip(prefix)
        return siglip(prefix, pooled_by_mean="classifier.weight" in tensors)
    return None


def clip(prefix: str) -> Layout:
    """Return the layout of a CLIP tower; its projection is a head without a bias."""
    rules = (
        token("cls_token", f"{prefix}embeddings.class_embedding"),
        *(rule for rule in _trunk(prefix) if rule.ours != ("patch_embed.proj.bias",)),
        *layer("norm_pre", f"{prefix}pre_layrnorm"),  # the misspelling is theirs
        with_zero_bias("head", "visual_projection.weight"),
    )
    return Layout("hf-clip", "hf-clip", rules, ignored=_IGNORED)


def siglip(prefix: str, pooled_by_mean: bool = False) -> Layout:
    """Return the layout of a SigLIP tower; with a classifier, that reads the patches' mean and not the pool."""
    pool = f"{prefix}head"
    attention = [
        rename("attn_pool.latent", f"{pool}.probe"),
        query_and_rest("attn_pool.q.weight", "attn_pool.kv.weight", f"{pool}.attention.in_proj_weight"),
        query_and_rest("attn_pool.q.bias", "attn_pool.kv.bias", f"{pool}.attention.in_proj_bias"),
        *layer("attn_pool.proj", f"{pool}.attention.out_proj"),
        *layer("attn_pool.norm", f"{pool}.layernorm"),
        *layer("attn_pool.mlp.fc1", f"{pool}.mlp.fc1"),
        *layer("attn_pool.mlp.fc2", f"{pool}.mlp.fc2"),
    ]
    end = layer("head", "classifier") if pooled_by_mean else attention
    ignored = (*_IGNORED, r"vision_model\.head\..*") if pooled_by_mean else _IGNORED
    return Layout("hf-siglip", "hf-siglip", (*_trunk(prefix), *end), {"class_token": False}, ignored=ignored)


def _trunk(prefix: str) -> list[Rule]:
    block = f"{prefix}encoder.layers.{{i}}"
    return [
        batched("pos_embed", f"{prefix}embeddings.position_embedding.weight"),
        *layer("patch_embed.proj", f"{prefix}embeddings.patch_embedding"),
        *layer("blocks.{i}.norm1", f"{block}.layer_norm1"),
        *fused_layer("blocks.{i}.attn.qkv", [f"{block}.self_attn.{name}_proj" for name in "qkv"]),
        *layer("blocks.{i}.attn.proj", f"{block}.self_attn.out_proj"),
        *layer("blocks.{i}.norm2", f"{block}.layer_norm2"),
        *layer("blocks.{i}.mlp.fc1", f"{block}.mlp.fc1"),
        *layer("blocks.{i}.mlp.fc2", f"{block}.mlp.fc2"),
        *layer("norm", f"{prefix}post_layernorm"),
    ]
