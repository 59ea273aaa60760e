"""OpenAI's CLIP, and open_clip's re-saves of it: the image tower."""

from __future__ import annotations

from numpy_vit.checkpoints.layouts.layout import Layout
from numpy_vit.checkpoints.layouts.rules import Tensors, batched, layer, multihead, rename, token, with_zero_bias

NAME = "openai-clip"
_IGNORED = (
    r"transformer\..*", r"token_embedding\..*", "positional_embedding", r"ln_final\..*", "text_projection",
    "logit_scale", "logit_bias", "input_resolution", "context_length", "vocab_size",
)  # fmt: skip


def detect(tensors: Tensors) -> Layout | None:
    """Return the layout of the whole model ("visual.conv1.weight") or of its tower alone, or None."""
    for prefix in ("visual.", ""):
        if {f"{prefix}conv1.weight", f"{prefix}transformer.resblocks.0.attn.in_proj_weight"} <= tensors.keys():
            return _layout(prefix)
    return None


def _layout(prefix: str) -> Layout:
    block = f"{prefix}transformer.resblocks.{{i}}"
    rules = (
        token("cls_token", f"{prefix}class_embedding"),
        batched("pos_embed", f"{prefix}positional_embedding"),
        rename("patch_embed.proj.weight", f"{prefix}conv1.weight"),
        *layer("norm_pre", f"{prefix}ln_pre"),
        *layer("blocks.{i}.norm1", f"{block}.ln_1"),
        *multihead("blocks.{i}.attn", f"{block}.attn"),
        *layer("blocks.{i}.norm2", f"{block}.ln_2"),
        *layer("blocks.{i}.mlp.fc1", f"{block}.mlp.c_fc"),
        *layer("blocks.{i}.mlp.fc2", f"{block}.mlp.c_proj"),
        *layer("norm", f"{prefix}ln_post"),
        with_zero_bias("head", f"{prefix}proj", transpose=True),  # used as x @ proj
    )
    return Layout(NAME, NAME, rules, ignored=_IGNORED if prefix else ())
