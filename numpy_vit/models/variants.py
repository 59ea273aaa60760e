"""Named models: timm's table of sizes, and a few that train on a laptop."""

from __future__ import annotations

import re
from typing import Any

from numpy_vit.models.vit_config import Config

# name: width D, depth, heads, patch sides.  Dosovitskiy et al. 2021, table 1; tiny and small Touvron et al. 2021
# (DeiT), table 1; the other patch sizes as timm names them.
SIZES: dict[str, tuple[int, int, int, tuple[int, ...]]] = {
    "tiny": (192, 12, 3, (8, 14, 16, 32)),
    "small": (384, 12, 6, (8, 14, 16, 32)),
    "base": (768, 12, 12, (8, 14, 16, 32)),
    "large": (1024, 24, 16, (8, 14, 16, 32)),
    "huge": (1280, 32, 16, (8, 14, 16, 32)),
}

# Laptop sizes, ours: name -> fields.  Small patches, since a ViT needs tokens to relate; the mean of the patches
# rather than a class token, which learns faster from few images (Beyer et al. 2022).
LAPTOP: dict[str, dict[str, Any]] = {
    "vit_digits_rows_8": {  # a token for each row of pixels: it sees whole strokes, and learns in half of the time
        "image_size": 8, "patch_size": (1, 8), "in_chans": 1, "num_classes": 10, "embed_dim": 64, "depth": 4,
        "num_heads": 4, "hidden_dim": 128, "class_token": False, "global_pool": "avg",
    },
    "vit_digits_patch2_8": {
        "image_size": 8, "patch_size": 2, "in_chans": 1, "num_classes": 10, "embed_dim": 64, "depth": 4, "num_heads": 4,
        "hidden_dim": 128, "class_token": False, "global_pool": "avg",
    },
    "vit_mnist_rows_28": {  # two rows of pixels a token
        "image_size": 28, "patch_size": (2, 28), "in_chans": 1, "num_classes": 10, "embed_dim": 96, "depth": 4,
        "num_heads": 4, "hidden_dim": 192, "class_token": False, "global_pool": "avg",
    },
    "vit_mini_patch4_28": {
        "image_size": 28, "patch_size": 4, "in_chans": 1, "num_classes": 10, "embed_dim": 96, "depth": 6,
        "num_heads": 4, "hidden_dim": 192, "class_token": False, "global_pool": "avg",
    },
    "vit_mini_patch4_32": {
        "image_size": 32, "patch_size": 4, "num_classes": 10, "embed_dim": 128, "depth": 6, "num_heads": 4,
        "hidden_dim": 256, "class_token": False, "global_pool": "avg",
    },
    "vit_micro_patch4_32": {
        "image_size": 32, "patch_size": 4, "num_classes": 10, "embed_dim": 192, "depth": 6, "num_heads": 3,
    },
    "vit_micro_patch8_64": {
        "image_size": 64, "patch_size": 8, "num_classes": 10, "embed_dim": 192, "depth": 6, "num_heads": 3,
    },
    "vit_micro_patch16_64": {
        "image_size": 64, "patch_size": 16, "num_classes": 10, "embed_dim": 192, "depth": 6, "num_heads": 3,
    },
}  # fmt: skip

_NAME = re.compile(r"vit_(?P<size>[a-z]+)_patch(?P<patch>\d+)_(?P<image>\d+)")


def vit_config(name: str, **overrides: Any) -> Config:
    """Return the configuration of a named variant: vit_config("vit_tiny_patch16_224", num_classes=10).

    Parameters
    ----------
    name : one of LAPTOP, or vit_SIZE_patchP_IMAGE with SIZE and P of the table SIZES and any IMAGE that P divides
    overrides : fields of Config that replace the variant's

    Raises
    ------
    ValueError : an unknown name, or fields that contradict each other.
    """
    if name in LAPTOP:
        return Config(**{**LAPTOP[name], **overrides})
    match = _NAME.fullmatch(name)
    if match is None or match["size"] not in SIZES or int(match["patch"]) not in SIZES[match["size"]][3]:
        raise ValueError(f"unknown variant {name!r}: choose one of {', '.join(variant_names())}")
    dim, depth, heads, _ = SIZES[match["size"]]
    fields = {
        "image_size": int(match["image"]), "patch_size": int(match["patch"]),
        "embed_dim": dim, "depth": depth, "num_heads": heads,
    }  # fmt: skip
    return Config(**{**fields, **overrides})


def variant_names() -> list[str]:
    """Return the names that exist: the laptop variants, then timm's at image side 224."""
    return [*LAPTOP, *(f"vit_{size}_patch{side}_224" for size, row in SIZES.items() for side in row[3])]
