"""Giving a trained model a new head."""

from __future__ import annotations

from dataclasses import fields, replace
from types import ModuleType
from typing import Any

import numpy as np

from numpy_vit import tree
from numpy_vit.errors import CheckpointError
from numpy_vit.layers import linear
from numpy_vit.models import vit
from numpy_vit.tree import Params

# What may change without another set of parameters.
_FREE = frozenset({
    "drop_rate", "pos_drop_rate", "patch_drop_rate", "proj_drop_rate", "attn_drop_rate", "drop_path_rate", "act",
    "norm_eps", "num_heads", "num_classes",
})  # fmt: skip


def with_head(
    model: ModuleType, config: Any, params: Params, classes: int, rng: np.random.Generator, **changes: Any
) -> tuple[vit.Config, Params]:
    """Return a model's configuration and parameters with a new linear head for other classes.

    Parameters
    ----------
    model, config, params : a ViT, with or without a head
    classes : K
    rng : draws the head: normal with deviation 0.02, as in MAE's fine-tuning and timm's; the bias is zero
    changes : other fields of Config, of those that no parameter depends on, such as drop_path_rate

    Raises
    ------
    CheckpointError : another model than a ViT.
    ValueError : a field that cannot be changed without other parameters.
    """
    if model is not vit:
        raise CheckpointError(f"a {model.__name__.rpartition('.')[2]} model cannot be fine-tuned: only ViTs can")
    if wrong := sorted(set(changes) - _FREE):
        known = ", ".join(sorted(_FREE - {"num_classes"}))
        raise ValueError(f"{', '.join(wrong)} belongs to the checkpoint: of its fields only {known} can be changed")
    names = {field.name for field in fields(vit.Config)}
    plain = vit.Config(**{name: getattr(config, name) for name in names})
    changed = replace(plain, num_classes=classes, **changes)
    dtype = next(iter(tree.flatten(params).values())).dtype
    body = {name: part for name, part in params.items() if name != "head"}
    body["head"] = linear.init(changed.pre_logits or changed.pooled_dim, classes, rng, dtype=dtype)
    return changed, body
