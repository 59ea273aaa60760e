"""From the image to the logits: every tensor on the way, its shape, and what it is."""

from __future__ import annotations

from numpy_vit.models import deit
from numpy_vit.models.vit_config import Config
from numpy_vit.views.report.markup import table
from numpy_vit.views.shapes import Shape, intermediate_shapes

_WORDS = {
    "patch_embed": "each patch becomes a vector, a token",
    "pos_drop": "prefix tokens in front, positions added",
    "norm_pre": "a norm before the blocks, where the model has one",
    ".norm1": "each token normalised",
    ".attn.qkv": "queries, keys and values of all heads",
    ".attn.weights": "where each token looks: the explorer's tensor",
    ".attn.proj": "what was gathered, the heads mixed",
    ".attn": "the attention's output",
    ".norm2": "each token normalised",
    ".mlp.fc1": "each token by itself, made wider",
    ".mlp.act": "the activation",
    ".mlp.fc2": "made narrow again",
    ".mlp": "the MLP's output",
    "": "the block's output",
    "norm": "each token normalised, where the model has this norm",
    "fc_norm": "the tokens pooled into one vector, and normalised where the model does so here",
    "pre_logits": "what the head reads",
    "logits": "a number a class: the largest is the answer",
    "head": "a number a class, from the class token",
    "head_dist": "a number a class, from the distillation token",
}


def rows(config: Config) -> list[list[str]]:
    """Return (name, shape for one image, what it is) of every tensor from the image to the logits.

    The blocks are alike, so that one stands for all.  The names are those of timm's modules; "weights" has none there.
    """
    R = config.num_tokens
    lines = [["image", _written((1, config.in_chans, *config.image)), "the picture: channels, rows, columns"]]
    for name, shape in intermediate_shapes(config).items():
        first, _, rest = name.partition(".")
        number, _, inside = rest.partition(".")
        if first != "blocks":
            lines.append([name, _written(shape), _meaning(name, config)])
        elif number == "0":
            part = f".{inside}" if inside else ""
            lines.append([_every(config) + part, _written(shape), _WORDS[part]])
            if part == ".attn.qkv":
                weights = _every(config) + ".attn weights"
                lines.append([weights, _written((1, config.num_heads, R, R)), _WORDS[".attn.weights"]])
    return lines


def section(config: Config) -> str:
    """Return the table."""
    return table("One image, from its pixels to the answer", ["tensor", "shape", "what it is"], rows(config))


def _every(config: Config) -> str:
    return "blocks.0" if config.depth == 1 else f"blocks.0…{config.depth - 1}"


def _meaning(name: str, config: Config) -> str:
    if name == "logits" and not config.num_classes:
        return "the features: this model has no head"
    if name in ("head", "head_dist") and isinstance(config, deit.Config) and not config.num_classes:
        return "the token: this model has no heads"
    return _WORDS[name]


def _written(shape: Shape) -> str:
    return " × ".join(map(str, shape))
