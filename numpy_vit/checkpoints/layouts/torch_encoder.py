"""Models around torch.nn.TransformerEncoderLayer, norms after the sums (PyTorch's default) or before."""

from __future__ import annotations

import re

from numpy_vit.checkpoints.layouts import handmade
from numpy_vit.checkpoints.layouts.layout import Assumption, Layout
from numpy_vit.checkpoints.layouts.rules import Tensors, layer, multihead

NAME = "torch-encoder"
_BLOCK = re.compile(r"(.*?)0\.self_attn\.in_proj_weight")


def detect(tensors: Tensors) -> Layout | None:
    """Return the layout if there are blocks with self_attn, linear1, linear2, norm1 and norm2, or None.

    Neither the order of norms and sums nor the activation is in the file.  A norm behind the last block goes with
    norms before the sums.
    """
    match = next((match for key in tensors if (match := _BLOCK.fullmatch(key))), None)
    if match is None or f"{match[1]}0.linear1.weight" not in tensors:
        return None
    outside = [key for key in tensors if not re.match(re.escape(match[1]) + r"\d+\.", key)]
    embedding = handmade.embedding(tensors, outside)
    if embedding is None:
        return None
    block = match[1] + "{i}"
    end = handmade.end(tensors, outside)
    rules = (
        *embedding,
        *layer("blocks.{i}.norm1", f"{block}.norm1"),
        *multihead("blocks.{i}.attn", f"{block}.self_attn"),
        *layer("blocks.{i}.norm2", f"{block}.norm2"),
        *layer("blocks.{i}.mlp.fc1", f"{block}.linear1"),
        *layer("blocks.{i}.mlp.fc2", f"{block}.linear2"),
        *end,
    )
    pre_norm = any(rule.ours[0] == "norm.weight" for rule in end)
    return Layout(NAME, "torch", rules, {}, _order(pre_norm), pixels=handmade.pixels(tensors, embedding))


def _order(pre_norm: bool) -> tuple[Assumption, ...]:
    if pre_norm:
        block = Assumption("block", "pre_norm", "there is a norm behind the blocks; PyTorch's default is post_norm")
        return block, Assumption("act", "gelu", "what goes with norm_first=True; PyTorch's default is relu")
    block = Assumption("block", "post_norm", "PyTorch's default (norm_first=False)")
    return block, Assumption("act", "relu", "PyTorch's default")
