"""Two hand-written models with timm's names but for the MLP, an nn.Sequential.

(a) patch_embed.proj a linear layer on (channel, row, column) patches; blocks.i.mlp.net.0 and .net.3;
(b) patch_embed.proj a convolution, followed by patch_embed.norm; blocks.i.mlp.0 and .3.

Any mixture of the two is recognised; without dropout between them the second layer is number 2.
"""

from __future__ import annotations

from numpy_vit.checkpoints.layouts import timm
from numpy_vit.checkpoints.layouts.layout import Layout
from numpy_vit.checkpoints.layouts.rules import Tensors, layer, patches_channel_first, rename

NAME = "tutorial"


def detect(tensors: Tensors) -> Layout | None:
    """Return the layout if the blocks have attn.qkv and a Sequential for an MLP, or None."""
    first = next((m for m in ("mlp.net.", "mlp.") if f"blocks.0.{m}0.weight" in tensors), None)
    if first is None or timm.PATCH not in tensors or "blocks.0.attn.qkv.weight" not in tensors:
        return None
    second = "3" if f"blocks.0.{first}3.weight" in tensors else "2"
    pixels = tensors[timm.PATCH].shape[1] if tensors[timm.PATCH].ndim == 2 else 0
    rules = (
        *(rule for rule in timm.RULES if not rule.ours[0].startswith("blocks.{i}.mlp")),
        *layer("blocks.{i}.mlp.fc1", f"blocks.{{i}}.{first}0"),
        *layer("blocks.{i}.mlp.fc2", f"blocks.{{i}}.{first}{second}"),
        patches_channel_first(timm.PATCH) if pixels else rename(timm.PATCH, timm.PATCH),
    )
    return Layout(NAME, "torch", rules, pixels=pixels)
