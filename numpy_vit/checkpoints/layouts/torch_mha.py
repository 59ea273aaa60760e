"""Hand-written blocks around torch.nn.MultiheadAttention, whatever their norms and MLP are called.

One such tutorial model: patch.proj (a convolution), cls_token, pos_embed, blocks.i.{ln1, attn, ln2, mlp.0, mlp.3},
ln, head.
"""

from __future__ import annotations

import re

from numpy_vit.checkpoints.layouts import handmade
from numpy_vit.checkpoints.layouts.layout import Layout
from numpy_vit.checkpoints.layouts.rules import Rule, Tensors, layer, multihead

NAME = "torch-mha"
_BLOCK = re.compile(r"(.*?)0\.(\w+)\.in_proj_weight")


def detect(tensors: Tensors) -> Layout | None:
    """Return the layout if every block is an attention, two norms and two linear layers, or None."""
    match = next((match for key in tensors if (match := _BLOCK.fullmatch(key))), None)
    if match is None:
        return None
    block = _block(tensors, match[1], match[2])
    outside = [key for key in tensors if not re.match(re.escape(match[1]) + r"\d+\.", key)]
    embedding = handmade.embedding(tensors, outside)
    if block is None or embedding is None:
        return None
    rules = (*embedding, *block, *handmade.end(tensors, outside))
    return Layout(NAME, "torch", rules, pixels=handmade.pixels(tensors, embedding))


def _block(tensors: Tensors, prefix: str, attention: str) -> list[Rule] | None:
    """Find norms and linear layers by rank; the first of each is the one whose name sorts first."""
    first = f"{prefix}0."
    names = [key.removeprefix(first) for key in tensors if key.startswith(first) and key.endswith(".weight")]
    names = sorted((n for n in names if not n.startswith(f"{attention}.")), key=_natural)
    norms = [name.removesuffix(".weight") for name in names if tensors[first + name].ndim == 1]
    linears = [name.removesuffix(".weight") for name in names if tensors[first + name].ndim == 2]
    if len(norms) != 2 or len(linears) != 2:
        return None
    theirs = prefix + "{i}."
    return [
        *layer("blocks.{i}.norm1", theirs + norms[0]),
        *multihead("blocks.{i}.attn", theirs + attention),
        *layer("blocks.{i}.norm2", theirs + norms[1]),
        *layer("blocks.{i}.mlp.fc1", theirs + linears[0]),
        *layer("blocks.{i}.mlp.fc2", theirs + linears[1]),
    ]


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]
