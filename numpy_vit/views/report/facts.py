"""What stands at the top of the page: the model, what it was trained on and how, and what it is worth."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

from numpy_vit import tree
from numpy_vit.models import deit
from numpy_vit.models.vit_config import Config
from numpy_vit.tree import Params
from numpy_vit.views.costs import multiply_adds
from numpy_vit.views.report.answers import Answers
from numpy_vit.views.report.markup import percent

_IMAGES = {"train_images": "to train on", "test_images": "to test on"}
_RECIPE = {
    "epochs": "epochs", "batch_size": "batch", "optimizer": "optimizer", "lr": "rate", "schedule": "schedule",
    "seed": "seed",
}  # fmt: skip


def facts(
    model: ModuleType, config: Config, params: Params, file: str, run: Mapping[str, Any], answers: Answers | None
) -> list[tuple[str, str]]:
    """Return pairs of a word and what it is.

    Parameters
    ----------
    model : vit or deit
    file : the checkpoint's name and family
    run : what config.json says of the run; empty for a file by itself
    answers : of the test part, where there is one
    """
    (Y, X), (py, px), (gy, gx) = config.image, config.patch, config.grid
    count = sum(leaf.size for leaf in tree.flatten(params).values())
    kind = "DeiT" if model is deit else "ViT"
    found = [
        ("model", f"{kind}: {config.depth} blocks, {config.num_heads} heads, width {config.embed_dim}"),
        ("image", f"{Y} × {X}, cut into {gy} × {gx} patches of {py} × {px}"),
        ("size", f"{count:,} parameters, {sum(multiply_adds(config).values()) / 1e6:,.1f} million multiply-adds"),
    ]
    if run:
        recipe, data = run["recipe"], run["data"]
        counts = [f"{data[key]:,} images {word}" for key, word in _IMAGES.items() if isinstance(data.get(key), int)]
        found.append(("data", ", ".join([str(data.get("name")), *counts])))
        said = [f"{word} {recipe[key]}" for key, word in _RECIPE.items() if recipe.get(key) is not None]
        found.append(("training", ", ".join(said)))
    else:
        found.append(("file", file))
    if answers:
        total = len(answers.labels)
        found.append(("recognised", f"{percent(answers.accuracy)} of the {total:,} images of {answers.data}"))
    return found
