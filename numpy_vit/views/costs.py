"""What a model costs: parameters and operations a part, memory for activations.

S tokens (T prefix tokens and N patches), width D, hidden width F, H heads, patches of C·py·px values, K classes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from numpy_vit.models import deit
from numpy_vit.models.vit_config import Config
from numpy_vit.views.shapes import Shape, attention_width

PARTS = (
    "patch embedding", "tokens", "positions", "attention", "MLP", "norms", "layer scale", "pooling", "head", "other",
)  # fmt: skip


def part(name: str) -> str:
    """Return which of PARTS a parameter of timm's name belongs to."""
    words = name.split(".")
    if words[0] in ("cls_token", "reg_token", "dist_token", "mask_token"):
        return "tokens"
    if words[0] == "pos_embed":
        return "positions"
    if words[0] == "attn_pool":
        return "pooling"
    if words[0] in ("head", "head_dist", "pre_logits"):
        return "head"
    if any(word.endswith("norm") or word.startswith("norm") for word in words):
        return "norms"
    if words[0] == "patch_embed":
        return "patch embedding"
    if words[0] != "blocks" or len(words) < 3:
        return "other"
    return {"attn": "attention", "mlp": "MLP", "ls1": "layer scale", "ls2": "layer scale"}.get(words[2], "other")


def parameters(shapes: Mapping[str, Shape]) -> dict[str, int]:
    """Return how many parameters each part has, parts without any left out."""
    counts = dict.fromkeys(PARTS, 0)
    for name, shape in shapes.items():
        counts[part(name)] += math.prod(shape)
    return {name: count for name, count in counts.items() if count}


def multiply_adds(config: Config) -> dict[str, int]:
    """Return the multiply-adds of one image's forward, a part each; a FLOP count is twice that.

    patch embedding       N · D · C·py·px
    attention projections 4 · S · D²  a block: queries, keys, values, output; with heads of another width
                          than D/H, H · d in place of one D, here and in the scores
    attention scores      2 · S² · D  a block: q kᵀ and the weighted sum of v
    MLP                   2 · S · D · F  a block; SwiGLU 3 · S · D · F
    pooling               by attention: D² + 2 · N · D² + 2 · N · D + D² + 2 · D · F
    head                  D · K; with pre-logits of width R, D · R + R · K; DeiT has two

    Matrix products only: norms, softmax, activations, biases and sums are below 1 % of it and not counted, as in
    the published figures (17.56 GMAC for ViT-B/16 at 224).  A backward costs twice the forward.
    """
    D, F, N, blocks = config.embed_dim, config.hidden, config.num_patches, config.depth
    S = config.num_prefix_tokens + N
    R, K = config.pre_logits or 0, config.num_classes
    inner, pooled = attention_width(config), config.pooled_dim
    heads = 2 if isinstance(config, deit.Config) else 1
    counts = {
        "patch embedding": N * D * config.in_chans * math.prod(config.patch),
        "attention projections": blocks * 4 * S * D * inner,
        "attention scores": blocks * 2 * S * S * inner,
        "MLP": blocks * (3 if config.swiglu else 2) * S * D * F,
        "pooling": 2 * D * D + 2 * N * D * D + 2 * N * D + 2 * D * F if config.global_pool == "map" else 0,
        "head": heads * (pooled * R + (R or pooled) * K),
    }
    return {name: count for name, count in counts.items() if count}
