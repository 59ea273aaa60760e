"""Small examples of every model, with random parameters."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

from numpy_vit import tree
from numpy_vit.checks.case import SEED, Case, normal
from numpy_vit.models import deit, vit
from numpy_vit.tree import Array, Params

# What a model can be, beyond the fields that all of these share.
VIT_CHOICES: dict[str, dict[str, Any]] = {
    "class token": {},
    "mean pooling, no class token, layer scale": {"global_pool": "avg", "class_token": False, "init_values": 0.5},
    "mean pooling of norm, sin-cos 1-D": {"global_pool": "avg", "fc_norm": False, "pos_embed": "sincos_1d"},
    "map pooling, registers, q and k norm": {"global_pool": "map", "reg_tokens": 2, "qk_norm": True},
    "registers without positions, SwiGLU": {"reg_tokens": 2, "no_embed_class": True, "swiglu": True},
    "norms before, no biases": {"norm_pre": True, "patch_norm": True, "patch_bias": False, "qkv_bias": False},
    "post-norm, tanh GELU, sin-cos (MAE)": {"block": "post_norm", "act": "gelu_tanh", "pos_embed": "sincos_2d_mae"},
    "quick GELU, pre-logits, sin-cos (simple)": {
        "act": "quick_gelu", "pre_logits": 5, "pos_embed": "sincos_2d_simple",
    },
    "no positions, no final norm": {"pos_embed": "none", "final_norm": False},
    "every dropout and drop path": {
        "drop_rate": 0.2, "pos_drop_rate": 0.2, "proj_drop_rate": 0.2, "attn_drop_rate": 0.2, "drop_path_rate": 0.4,
    },
    "class token and mean, relu, wide heads": {"global_pool": "token_avg", "act": "relu", "head_dim": 3},
    "mean with class token, norm of pixels": {
        "global_pool": "avg", "pool_include_prefix": True, "patch_pre_norm": True,
    },
}  # fmt: skip


def vit_example(choices: dict[str, Any]) -> vit.Config:
    """Return a tiny configuration whose sizes are all distinct: 6x12 images of 2 channels in patches of 2x4."""
    sizes = {"image_size": (6, 12), "patch_size": (2, 4), "in_chans": 2, "num_classes": 3, "embed_dim": 8, "depth": 2}
    return vit.Config(**{**sizes, "num_heads": 2, "hidden_dim": 10, **choices})


def vit_cases(layer: ModuleType, rng: np.random.Generator) -> list[Case]:
    """Return the examples of the Vision Transformer."""
    return [_model(layer, what, vit_example(choices), rng) for what, choices in VIT_CHOICES.items()]


def _model(layer: ModuleType, what: str, config: vit.Config, rng: np.random.Generator) -> Case:
    params = layer.init(config, rng, np.float64)
    params = tree.map(lambda leaf: leaf + 0.3 * rng.standard_normal(leaf.shape), params)

    def forward(params: Params, images: Array) -> Any:
        return layer.forward(params, images, config, np.random.default_rng(SEED))

    return Case(what, forward, partial(layer.backward, input_grad=True), params, normal(rng, 3, 2, 6, 12), 2)


DEIT_CHOICES: dict[str, dict[str, Any]] = {
    "two tokens, two heads": {},
    "sin-cos (MAE), layer scale, no head": {"pos_embed": "sincos_2d_mae", "init_values": 0.5, "num_classes": 0},
    "post-norm, every dropout and drop path": {"block": "post_norm", **VIT_CHOICES["every dropout and drop path"]},
}


def deit_example(choices: dict[str, Any]) -> deit.Config:
    """Return a tiny DeiT of the sizes of `vit_example`."""
    return deit.Config(**{**asdict(vit_example({})), **choices})


def deit_cases(layer: ModuleType, rng: np.random.Generator) -> list[Case]:
    """Return the examples of DeiT."""
    return [_model(layer, what, deit_example(choices), rng) for what, choices in DEIT_CHOICES.items()]
