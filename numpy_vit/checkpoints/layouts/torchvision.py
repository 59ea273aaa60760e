"""torchvision's vit_*."""

from __future__ import annotations

from numpy_vit.checkpoints.layouts.layout import Layout
from numpy_vit.checkpoints.layouts.rules import Tensors, layer, multihead, rename

NAME = "torchvision"
_BLOCK = "encoder.layers.encoder_layer_{i}"


def detect(tensors: Tensors) -> Layout | None:
    """Return the layout of torchvision's names, those of the MLP before and after mid-2022, or None."""
    if "conv_proj.weight" not in tensors or _BLOCK.format(i=0) + ".ln_1.weight" not in tensors:
        return None
    old = _BLOCK.format(i=0) + ".mlp.linear_1.weight" in tensors
    return _layout(("linear_1", "linear_2") if old else ("0", "3"))


def default() -> Layout:
    """Return the layout as it is written."""
    return _layout(("0", "3"))


def _layout(mlp: tuple[str, str]) -> Layout:
    rules = (
        rename("cls_token", "class_token"),
        rename("pos_embed", "encoder.pos_embedding"),
        *layer("patch_embed.proj", "conv_proj"),
        *layer("blocks.{i}.norm1", f"{_BLOCK}.ln_1"),
        *multihead("blocks.{i}.attn", f"{_BLOCK}.self_attention"),
        *layer("blocks.{i}.norm2", f"{_BLOCK}.ln_2"),
        *layer("blocks.{i}.mlp.fc1", f"{_BLOCK}.mlp.{mlp[0]}"),
        *layer("blocks.{i}.mlp.fc2", f"{_BLOCK}.mlp.{mlp[1]}"),
        *layer("norm", "encoder.ln"),
        *layer("pre_logits.fc", "heads.pre_logits"),
        *layer("head", "heads.head"),
    )
    return Layout(NAME, NAME, rules)
