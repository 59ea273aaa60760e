"""Small examples of the masked autoencoder and of its layers, with random parameters."""

from __future__ import annotations

from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

from numpy_vit import tree
from numpy_vit.checks.case import Case, normal
from numpy_vit.checks.model_examples import vit_example
from numpy_vit.models import mae
from numpy_vit.tree import Array, Params


def random_masking_cases(layer: ModuleType, rng: np.random.Generator) -> list[Case]:
    """Return the examples of random_masking."""
    visible = layer.orders(rng.random((3, 5)))[0][:, :2]
    return [
        Case(
            f"(3, {first} + 5, 4), 2 visible", partial(layer.forward, visible=visible, first=first), layer.backward,
            None, normal(rng, 3, first + 5, 4),
        )
        for first in (0, 1)
    ]  # fmt: skip


def mask_tokens_cases(layer: ModuleType, rng: np.random.Generator) -> list[Case]:
    """Return the examples of mask_tokens."""
    params = tree.map(lambda leaf: leaf + rng.standard_normal(leaf.shape), layer.init(4, rng, np.float64))
    restore = rng.permuted(np.tile(np.arange(5), (3, 1)), axis=1)
    return [
        Case(
            f"(3, {first} + 2, 4) into 5 places", partial(layer.forward, restore=restore, first=first), layer.backward,
            params, normal(rng, 3, first + 2, 4),
        )
        for first in (0, 1)
    ]  # fmt: skip


def masked_patch_loss_cases(layer: ModuleType, rng: np.random.Generator) -> list[Case]:
    """Return the examples of masked_patch_loss."""
    target, mask = normal(rng, 2, 4, 3), np.array([[True, False, False, True], [False, True, True, True]])
    target = layer.normalised(3 + 2 * target)[0]
    forward = partial(layer.forward, target=target, mask=mask)
    return [
        Case("(2, 4, 3), 5 patches masked", forward, layer.backward, None, normal(rng, 2, 4, 3)),
        Case(
            "whole batch's denominator", partial(forward, denominator=12.0), layer.backward, None, normal(rng, 2, 4, 3)
        ),
    ]


MAE_CHOICES: dict[str, dict[str, Any]] = {
    "normalised pixels": {},
    "pixels, few of them masked": {"norm_pix_loss": False, "mask_ratio": 0.3},
    "whole batch's denominator": {"mask_ratio": 0.5, "decoder_hidden_dim": 7},
}


def mae_example(choices: dict[str, Any]) -> mae.Config:
    """Return a tiny masked autoencoder: an encoder of the sizes of `vit_example`, and a decoder of its own width."""
    encoder = vit_example({"pos_embed": "sincos_2d_mae"})
    return mae.Config(
        **{"encoder": encoder, "decoder_embed_dim": 4, "decoder_depth": 2, "decoder_num_heads": 2, **choices}
    )


def mae_cases(layer: ModuleType, rng: np.random.Generator) -> list[Case]:
    """Return the examples of the masked autoencoder; its images are whole numbers, since they have no gradient."""
    cases = []
    for what, choices in MAE_CHOICES.items():
        config = mae_example(choices)
        params = layer.init(config, rng, np.float64)
        params = tree.map(lambda leaf: leaf + 0.3 * rng.standard_normal(leaf.shape), params)
        noise, denominator = rng.random((3, 9)), 40.0 if "denominator" in what else None
        forward = partial(_mae_forward, layer, config, noise, denominator)
        backward = partial(_mae_backward, layer)
        cases.append(Case(what, forward, backward, params, rng.integers(-3, 4, (3, 2, 6, 12)), 2))
    return cases


def _mae_forward(
    layer: ModuleType, config: mae.Config, noise: Array, denominator: float | None, params: Params, images: Array
) -> Any:
    images = images.astype(params["mask_token"].dtype)
    return layer.forward(params, images, config, noise, denominator=denominator)


def _mae_backward(layer: ModuleType, dloss: Array, cache: Any) -> Any:
    return None, layer.backward(dloss, cache)
