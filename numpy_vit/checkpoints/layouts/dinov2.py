"""facebookresearch/dinov2: timm's names but for registers, SwiGLU and the blocks of training files."""

from __future__ import annotations

import re

from numpy_vit.checkpoints.layouts import timm
from numpy_vit.checkpoints.layouts.layout import Layout
from numpy_vit.checkpoints.layouts.rules import Tensors, absorbed, layer, rename

NAME = "dinov2"
_CHUNK = re.compile(r"blocks\.(\d+)\.(\d+)\.")


def detect(tensors: Tensors) -> Layout | None:
    """Return the layout if there is a 2-D mask token or there are registers under DINOv2's name, or None.

    With registers the class token absorbs its position row, since registers have none.  Training files name blocks
    blocks.CHUNK.INDEX, where the index runs through all chunks.
    """
    mask = tensors.get("mask_token")
    if timm.PATCH not in tensors or not ("register_tokens" in tensors or (mask is not None and mask.ndim == 2)):
        return None
    registers = "register_tokens" in tensors
    dropped = ("cls_token", "pos_embed", "reg_token") if registers else ()
    rules = [rule for rule in timm.default().rules if rule.ours[0] not in dropped]
    if registers:
        rules += [absorbed("cls_token", "pos_embed"), rename("reg_token", "register_tokens")]
    if any(".mlp.w12." in key for key in tensors):
        rules = [rule for rule in rules if ".mlp." not in rule.ours[0] or not rule.ours[0].startswith("blocks")]
        rules += [*layer("blocks.{i}.mlp.fc1", "blocks.{i}.mlp.w12"), *layer("blocks.{i}.mlp.fc2", "blocks.{i}.mlp.w3")]
    chunks = {match[2]: match[1] for key in tensors if (match := _CHUNK.match(key))}
    return Layout(
        NAME,
        "dinov2-registers" if registers else "dinov2",
        tuple(rules),
        ignored=("mask_token",),
        open=lambda found: {_CHUNK.sub(r"blocks.\2.", key, count=1): array for key, array in found.items()},
        close=lambda made: {_chunked(key, chunks): array for key, array in made.items()},
    )


def _chunked(key: str, chunks: dict[str, str]) -> str:
    match = re.match(r"blocks\.(\d+)\.", key)
    if match is None or match[1] not in chunks:
        return key
    return f"blocks.{chunks[match[1]]}.{key.removeprefix('blocks.')}"
