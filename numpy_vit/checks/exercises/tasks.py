"""Which layers are exercises, and which steps of the derivation give each of their gradients."""

from __future__ import annotations

from numpy_vit.checks import catalogue
from numpy_vit.checks.examples import MODELS

# For each layer the gradients in the order in which backward finds them, by the beginnings of their names, and the
# steps of the derivation that give them: what a gradient lacks is as a rule in the first.
STEPS: dict[str, dict[str, tuple[int, ...]]] = {
    "linear": {"params.bias": (4,), "params.weight": (3,), "x": (2,)},
    "patchify": {"x": (2,)},
    "patch_embed": {"params.norm": (1,), "params.proj": (2,), "params.pre_norm": (3,), "x": (4,)},
    "prefix_tokens": {"params": (2,), "x": (1,)},
    "position_table": {"params": (2,), "x": (1,)},
    "layernorm": {"params": (1,), "x": (5,)},
    "softmax": {"x": (2,)},
    "dot_product_attention": {"x.2": (2,), "x.3": (4,), "x.0": (5,), "x.1": (5,)},
    "attention": {
        "params.proj": (1,), "x.1": (2,), "params.q_norm": (3,), "params.k_norm": (3,), "params.qkv": (4, 2),
        "x.0": (5,),
    },
    "readout_attention": {
        "params.proj": (1,), "params.q_norm": (3,), "params.k_norm": (3,), "params.qkv": (6, 2), "x": (5, 4),
    },
    "gelu": {"x": (2,)},
    "gelu_tanh": {"x": (3,)},
    "quick_gelu": {"x": (2,)},
    "relu": {"x": (1,)},
    "mlp": {"params.fc2": (1,), "params.fc1": (2, 3), "x": (3,)},
    "silu": {"x": (2,)},
    "swiglu": {"params.fc2": (1,), "params.fc1": (2, 3), "x": (4,)},
    "dropout": {"x": (2,)},
    "drop_path": {"x": (2,)},
    "patch_dropout": {"x": (1, 2)},
    "layer_scale": {"params.gamma": (2,), "x": (1,)},
    "block": {
        "params.ls2": (2,), "params.mlp": (2,), "params.norm2": (2,),
        "params.ls1": (1, 3), "params.attn": (1, 3), "params.norm1": (3,), "x": (3,),
    },
    "post_norm_block": {
        "params.norm2": (1,), "params.ls2": (2,), "params.mlp": (2,),
        "params.norm1": (1, 3), "params.ls1": (4,), "params.attn": (4,), "x": (3,),
    },
    "readout_block": {
        "params.ls2": (1,), "params.mlp": (1,), "params.norm2": (1,),
        "params.ls1": (1, 2), "params.attn": (1, 2), "params.norm1": (2,), "x": (3,),
    },
    "encoder": {"params": (1,), "x": (1,)},
    "token_pool": {"x": (1,)},
    "mean_pool": {"x": (1,)},
    "token_and_mean_pool": {"x": (1, 2)},
    "attention_pool": {
        "params.mlp": (1,), "params.norm": (1,), "params.proj": (1, 2), "params.kv": (3, 2), "x": (3,),
        "params.latent": (4, 5), "params.q": (4, 5),
    },
    "tanh": {"x": (1,)},
    "pre_logits": {"params.fc": (1, 2), "x": (2,)},
    "cross_entropy": {"x": (3, 2)},
    "kl_divergence": {"x": (3, 2)},
    "mse": {"x": (2,)},
    "random_masking": {"x": (3, 4)},
    "mask_tokens": {"params.mask_token": (4,), "x": (2, 3)},
    "masked_patch_loss": {"x": (2,)},
}  # fmt: skip


def names() -> list[str]:
    """Return the exercises in reading order: every layer, and no model."""
    return [name for name in catalogue.names() if name not in MODELS]


def check(name: str) -> str:
    """Return the name of an exercise.

    Raises
    ------
    ValueError : an unknown name; the message lists those that exist.
    """
    if name not in names():
        raise ValueError(f"unknown exercise {name!r}: choose one of {', '.join(names())}")
    return name


def first_wrong(name: str, wrong: list[str]) -> tuple[str, tuple[int, ...]]:
    """Return the wrong gradient that backward finds first, since the others may follow from it, and its steps.

    Parameters
    ----------
    wrong : names as in a report of gradcheck, at least one: "x", "params.weight"
    """
    for begin, steps in STEPS[name].items():
        for gradient in wrong:
            if gradient == begin or gradient.startswith(begin + "."):
                return gradient, steps
    return wrong[0], next(iter(STEPS[name].values()))
