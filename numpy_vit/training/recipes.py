"""The named recipes: for each the model, the fields of it that differ, and how it is trained."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from numpy_vit.training.recipe import Recipe


@dataclass(frozen=True)
class Named:
    """A variant's name (or None: that of the checkpoint that is trained on), fields of its Config, and a recipe."""

    variant: str | None
    recipe: Recipe
    fields: dict[str, Any] = field(default_factory=dict)


RECIPES: dict[str, Named] = {
    "digits": Named(
        "vit_digits_rows_8", Recipe(epochs=100, lr=3e-3, weight_decay=0.3, warmup_epochs=3, affine=1.0)
    ),
    "mnist": Named("vit_mnist_rows_28", Recipe(epochs=10, lr=2e-3, weight_decay=0.1, affine=0.7)),
    "fashion": Named(
        "vit_mnist_rows_28",
        Recipe(epochs=45, lr=1.5e-3, weight_decay=0.1, flip=True, padding=2, erase=0.2, label_smoothing=0.1),
    ),
    "cifar10": Named(
        "vit_mini_patch4_32",
        Recipe(
            epochs=20, batch_size=128, optimizer="muon", lr=2e-3, momentum=0.95, beta2=0.98, warmup_epochs=0.75,
            padding=4, pad_mode="reflect", flip=True, label_smoothing=0.1, patch_drop=0.5, patch_drop_until=0.7,
            test_every=2,
        ),
    ),
    # Touvron et al. 2021, table 9, for batches of 128 instead of 1024; its 300 epochs are days on a laptop
    "deit": Named(
        "vit_mini_patch4_32",
        Recipe(
            epochs=100, batch_size=128, lr=1e-3, warmup_epochs=5, flip=True, crop_scale=0.3, label_smoothing=0.1,
            auto_augment="rand-m9-mstd0.5-inc1", erase=0.25, erase_mode="pixel", mixup=0.8, cutmix=1.0, repeats=3,
            ema=0.999,
        ),
        {"drop_path_rate": 0.1},
    ),
    "mae": Named(
        "vit_mini_patch4_32",
        Recipe(
            epochs=40, batch_size=256, optimizer="muon", lr=2e-3, momentum=0.95, beta2=0.95, warmup_epochs=2, flip=True,
            crop_scale=0.4, test_every=4,
        ),
        {"class_token": True, "fc_norm": False, "pos_embed": "sincos_2d_mae"},
    ),
    "finetune": Named(
        None,
        Recipe(
            epochs=10, batch_size=32, lr=1e-3, warmup_epochs=1, layer_decay=0.75, flip=True, crop_scale=0.6,
            label_smoothing=0.1,
        ),
        {"drop_path_rate": 0.1},
    ),
    "small": Named(
        "vit_mini_patch4_32",
        Recipe(
            epochs=20, batch_size=64, optimizer="muon", lr=2e-3, momentum=0.95, beta2=0.98, warmup_epochs=1, padding=4,
            flip=True, label_smoothing=0.1,
        ),
    ),
}  # fmt: skip

# What `numpy-vit train` takes for each kind of data when no recipe is named.
DEFAULTS: dict[str, str] = {
    "digits": "digits", "mnist": "mnist", "fashion-mnist": "fashion", "cifar10": "cifar10", "cifar100": "cifar10",
    "folder": "small", "shapes": "small",
}  # fmt: skip
