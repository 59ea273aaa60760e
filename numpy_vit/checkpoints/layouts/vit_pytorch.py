"""lucidrains/vit-pytorch: ViT in its eras since 2020-12, and SimpleViT."""

from __future__ import annotations

from typing import Any

import numpy as np

from numpy_vit.checkpoints.layouts.layout import Assumption, Layout
from numpy_vit.checkpoints.layouts.rules import (
    Rule,
    Tensors,
    batched,
    layer,
    patches_channel_last,
    rename,
    vector_channel_last,
    with_zero_bias,
)
from numpy_vit.tree import Array

NAME = "vit-pytorch"
_SCALE = "since 2021-01-21; files trained before it used dim^-0.5 with the same keys"
_TOKEN = "pool='mean' has the same keys: that is global_pool='avg', pool_include_prefix=True"


def detect(tensors: Tensors) -> Layout | None:
    """Return the layout of ViT or SimpleViT, or None."""
    attention = next((p for p in ("0", "0.fn", "0.fn.fn") if f"transformer.layers.0.{p}.to_qkv.weight" in tensors), "")
    patches = _patches(tensors)
    if not attention or not patches:
        return None
    rules = (*patches, *_tokens(tensors), *_attention(tensors, attention), *_mlp(tensors), *_end(tensors))
    pixels = next(tensors[rule.theirs[0]].shape[1] for rule in patches if rule.ours == ("patch_embed.proj.weight",))
    fields, assumed = _pooling(tensors)
    if empty := "cls_token" in tensors and tensors["cls_token"].size == 0:
        fields["class_token"] = False
    return Layout(
        NAME,
        NAME,
        rules,
        fields,
        (*assumed, Assumption("scale", "dim_head^-0.5", _SCALE)),
        pixels=pixels,
        close=_with_empty_token if empty else lambda made: made,
    )


def _patches(tensors: Tensors) -> list[Rule]:
    first = tensors.get("to_patch_embedding.1.weight")
    if first is not None and first.ndim == 1:  # a norm of the patch's pixels, the projection, a norm
        return [
            vector_channel_last("patch_embed.pre_norm.weight", "to_patch_embedding.1.weight"),
            vector_channel_last("patch_embed.pre_norm.bias", "to_patch_embedding.1.bias"),
            patches_channel_last("to_patch_embedding.2.weight"),
            rename("patch_embed.proj.bias", "to_patch_embedding.2.bias"),
            *layer("patch_embed.norm", "to_patch_embedding.3"),
        ]
    name = "to_patch_embedding.1" if first is not None else "patch_to_embedding"
    if f"{name}.weight" not in tensors:
        return []
    return [patches_channel_last(f"{name}.weight"), rename("patch_embed.proj.bias", f"{name}.bias")]


def _tokens(tensors: Tensors) -> list[Rule]:
    """(1, 1, D) and (1, R, D), since 2025-11-27 without the first axis."""
    rules = []
    for ours, theirs in (("cls_token", "cls_token"), ("pos_embed", "pos_embedding")):
        if theirs in tensors and tensors[theirs].size:
            rules.append((batched if tensors[theirs].ndim == 2 else rename)(ours, theirs))
    return rules


def _attention(tensors: Tensors, path: str) -> list[Rule]:
    inner = f"transformer.layers.{{i}}.{path}"
    norm = "transformer.layers.{i}.0.fn.norm" if path == "0.fn.fn" else "transformer.layers.{i}.0.norm"
    first = inner.format(i=0)
    if f"{first}.to_out.0.weight" in tensors:
        out = layer("blocks.{i}.attn.proj", f"{inner}.to_out.0")
    elif f"{first}.to_out.weight" in tensors:  # SimpleViT
        out = [with_zero_bias("blocks.{i}.attn.proj", f"{inner}.to_out.weight")]
    else:  # one head as wide as the model: no projection
        out = []
    qkv = rename("blocks.{i}.attn.qkv.weight", f"{inner}.to_qkv.weight")
    return [
        *layer("blocks.{i}.norm1", norm),
        *(out or []),
        qkv if out else _without_projection(f"{inner}.to_qkv.weight"),
    ]


def _without_projection(qkv: str) -> Rule:
    """No projection there is one by the identity here."""

    def identity(a: Array) -> list[Array]:
        dim = len(a) // 3
        return [a, np.eye(dim, dtype=a.dtype), np.zeros(dim, a.dtype)]

    names = ("qkv.weight", "proj.weight", "proj.bias")
    ours = tuple(f"blocks.{{i}}.attn.{name}" for name in names)
    return Rule(ours, (qkv,), lambda a, _: identity(a[0]), lambda a, _: [a[0]])


def _mlp(tensors: Tensors) -> list[Rule]:
    block = "transformer.layers.{i}.1"
    if f"{block.format(i=0)}.net.0.weight" in tensors:  # the norm is the first of the MLP
        last = "4" if f"{block.format(i=0)}.net.4.weight" in tensors else "3"  # SimpleViT has no dropout
        norm, first, second = f"{block}.net.0", f"{block}.net.1", f"{block}.net.{last}"
    else:
        inner = f"{block}.fn.fn" if f"{block.format(i=0)}.fn.fn.net.0.weight" in tensors else f"{block}.fn"
        norm = f"{block}.fn.norm" if inner.endswith("fn.fn") else f"{block}.norm"
        first, second = f"{inner}.net.0", f"{inner}.net.3"
        if f"{second.format(i=0)}.weight" not in tensors:
            second = f"{inner}.net.2"
    return [
        *layer("blocks.{i}.norm2", norm),
        *layer("blocks.{i}.mlp.fc1", first),
        *layer("blocks.{i}.mlp.fc2", second),
    ]


def _end(tensors: Tensors) -> list[Rule]:
    """A norm of all tokens and a head, or a head that begins with a norm of the pooled one."""
    head = "linear_head" if any(key.startswith("linear_head") for key in tensors) else "mlp_head"
    if f"{head}.0.weight" in tensors:
        return [*layer("fc_norm", f"{head}.0"), *layer("head", f"{head}.1")]
    return [*layer("norm", "transformer.norm"), *layer("head", head)]


def _pooling(tensors: Tensors) -> tuple[dict[str, Any], list[Assumption]]:
    if "cls_token" not in tensors:  # SimpleViT
        why = "SimpleViT computes its positions"
        assumed = [] if "pos_embedding" in tensors else [Assumption("pos_embed", "sincos_2d_simple", why)]
        return {"global_pool": "avg"}, assumed
    if tensors["cls_token"].size == 0:
        return {"global_pool": "avg"}, []
    return {}, [Assumption("global_pool", "token", _TOKEN)]


def _with_empty_token(made: Tensors) -> Tensors:
    table = made["pos_embedding"]
    return {"cls_token": np.zeros((0, table.shape[-1]), table.dtype), **made}
