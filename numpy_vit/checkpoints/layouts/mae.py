"""facebookresearch/mae: an encoder with timm's names, and a decoder, which is not the Vision Transformer's."""

from __future__ import annotations

from dataclasses import replace

from numpy_vit.checkpoints.layouts import timm
from numpy_vit.checkpoints.layouts.layout import Layout
from numpy_vit.checkpoints.layouts.rules import Tensors

NAME = "mae"


def detect(tensors: Tensors) -> Layout | None:
    """Return the layout of a whole MAE; the encoder alone cannot be told from timm's ViT without a head."""
    if "decoder_embed.weight" not in tensors or "blocks.0.attn.qkv.weight" not in tensors:
        return None
    return replace(timm.default(), name=NAME, family="mae", ignored=("mask_token", r"decoder_.*"))
