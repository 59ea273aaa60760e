"""The preprocessing of published models: a table by family, and the JSON files that lie beside checkpoints."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from numpy_vit.data.eval_transform import RESAMPLING, EvalTransform
from numpy_vit.errors import DataError

HALF = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
CLIP = ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))


@dataclass(frozen=True)
class Recipe:
    """What is known without the image size; the resized side is floor(side / crop_pct)."""

    statistics: tuple[tuple[float, ...], tuple[float, ...]]
    crop_pct: float
    resample: str = "bicubic"
    squash: bool = False
    antialias: bool = True
    floor_corner: bool = False


_SMALL_CROP = 0.9  # timm's, below 384 pixels; from there on the whole picture
_LARGE = 384

# Mean and std belong to the weights, not to the architecture: each line is the usual case of a family.
RECIPES: dict[str, Recipe] = {
    "timm": Recipe(HALF, _SMALL_CROP),  # its AugReg weights; those it took from DeiT or MAE need theirs
    "timm-clip": Recipe(CLIP, _SMALL_CROP),
    "timm-siglip": Recipe(HALF, _SMALL_CROP),
    "imagenet": Recipe(IMAGENET, _SMALL_CROP),  # timm's default statistics
    "deit": Recipe(IMAGENET, 224 / 256),
    "mae": Recipe(IMAGENET, 224 / 256),
    "dino": Recipe(IMAGENET, 224 / 256),
    "dinov2": Recipe(IMAGENET, 224 / 256),
    "dinov2-registers": Recipe(IMAGENET, 224 / 256),
    "torchvision": Recipe(IMAGENET, 224 / 256, "bilinear"),
    "google": Recipe(HALF, 1.0, "bilinear", squash=True, antialias=False),
    "big_vision": Recipe(HALF, 1.0, "bilinear", squash=True, antialias=False),
    "openai-clip": Recipe(CLIP, 1.0),
    "hf-vit": Recipe(HALF, 1.0, "bilinear", squash=True),
    "hf-deit": Recipe(IMAGENET, 224 / 256, squash=True),
    "hf-mae": Recipe(IMAGENET, 1.0, "bilinear", squash=True),
    "hf-dinov2": Recipe(IMAGENET, 224 / 256, floor_corner=True),
    "hf-dinov2-registers": Recipe(IMAGENET, 224 / 256, floor_corner=True),
    "hf-clip": Recipe(CLIP, 1.0, floor_corner=True),
    "hf-siglip": Recipe(HALF, 1.0, squash=True),
    "vit-pytorch": Recipe(IMAGENET, 224 / 256),  # trained by whoever wrote the file: a guess
    "torch": Recipe(IMAGENET, 224 / 256),  # the same
}

# transformers' processors: what they do where the JSON is silent.  A `size` that is one number means a square for the
# first three and the shorter side for the others.
_SQUARES = ("ViT", "DeiT", "Siglip")
_PROCESSORS: dict[str, Recipe] = {
    "ViT": RECIPES["hf-vit"],
    "DeiT": replace(RECIPES["hf-deit"], statistics=HALF),
    "Siglip": RECIPES["hf-siglip"],
    "CLIP": RECIPES["hf-clip"],
    "Bit": RECIPES["hf-clip"],
}


def named(name: str, size: tuple[int, int]) -> EvalTransform:
    """Return the usual preprocessing of a family, one of RECIPES, for images of `size` (Y, X).

    Raises
    ------
    ValueError : an unknown name.
    """
    if name not in RECIPES:
        raise ValueError(f"unknown preprocessing {name!r}: choose one of {', '.join(RECIPES)}")
    recipe = RECIPES[name]
    crop = 1.0 if recipe.crop_pct == _SMALL_CROP and min(size) >= _LARGE else recipe.crop_pct
    return _transform(replace(recipe, crop_pct=crop), size)


def beside(path: str | os.PathLike[str], size: tuple[int, int]) -> tuple[EvalTransform, Path] | None:
    """Look beside a checkpoint for preprocessor_config.json (transformers) or config.json (timm).

    Returns
    -------
    (transform, file) : the result has `size`; None where neither file speaks of preprocessing

    Raises
    ------
    DataError : such a file is broken.
    """
    for name, read in (("preprocessor_config.json", _of_processor), ("config.json", _of_timm)):
        file = Path(path).parent / name
        if file.is_file():
            stored = read_json(file)
            try:
                found = read(stored, size)
            except (TypeError, ValueError, KeyError, AttributeError, ArithmeticError, IndexError) as error:
                raise DataError(f"{file}: its preprocessing cannot be understood: {error}") from error
            if found:
                return found, file
    return None


def read_json(file: Path) -> dict[str, Any]:
    """Return the object in a JSON file.

    Raises
    ------
    DataError : the file is broken or holds something else.
    """
    try:
        stored = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{file}: cannot be read as JSON: {error}") from error
    if not isinstance(stored, dict):
        raise DataError(f"{file}: has to hold an object, not a {type(stored).__name__}")
    return stored


def _transform(recipe: Recipe, size: tuple[int, int]) -> EvalTransform:
    # floor, as timm and torchvision's recipes do; 224 / (224 / 256) must not become 255.99
    resize = tuple(math.floor(round(side / recipe.crop_pct, 6)) for side in size)
    mean, std = recipe.statistics
    return EvalTransform(
        size, (resize[0], resize[1]), recipe.squash, recipe.resample, mean, std, recipe.antialias, recipe.floor_corner
    )


def _of_timm(stored: Mapping[str, Any], size: tuple[int, int]) -> EvalTransform | None:
    """timm's config.json: pretrained_cfg with mean, std, interpolation, crop_pct, crop_mode."""
    cfg = stored.get("pretrained_cfg", stored)
    if not isinstance(cfg, Mapping) or "mean" not in cfg or "std" not in cfg:
        return None
    recipe = Recipe(
        statistics=(_floats(cfg["mean"]), _floats(cfg["std"])),
        crop_pct=float(cfg.get("crop_pct") or 0.875),
        resample=str(cfg.get("interpolation", "bilinear")),
        squash=cfg.get("crop_mode", "center") == "squash",
    )
    return _transform(recipe, size)


def _of_processor(stored: Mapping[str, Any], size: tuple[int, int]) -> EvalTransform:
    """transformers' preprocessor_config.json, over its class's defaults."""
    kind = str(stored.get("image_processor_type", stored.get("feature_extractor_type", "ViT")))
    for ending in ("Fast", "ImageProcessor", "FeatureExtractor"):
        kind = kind.removesuffix(ending)
    recipe = _PROCESSORS.get(kind, _PROCESSORS["ViT"])
    mean, std = (_floats(stored.get(f"image_{name}", recipe.statistics[i])) for i, name in enumerate(("mean", "std")))
    if not stored.get("do_normalize", True):
        mean, std = (0.0,) * len(mean), (1.0,) * len(std)
    code = stored.get("resample", RESAMPLING[recipe.resample])
    resample = {filter.value: name for name, filter in RESAMPLING.items()}[code]
    resize, squash = _resized(stored.get("size"), kind in _SQUARES, recipe, size)
    if not stored.get("do_center_crop", recipe.crop_pct != 1 or not recipe.squash):
        return EvalTransform(size, size, True, resample, mean, std)
    # The file's crop may be for another size than the model's: the crop's share of the resized picture stays.
    crop = _pair(stored.get("crop_size") or (224 if kind == "DeiT" else size))
    scaled = tuple(round(side * r / c) for side, r, c in zip(size, resize, crop, strict=True))
    return EvalTransform(size, (scaled[0], scaled[1]), squash, resample, mean, std, floor_corner=True)


def _resized(stored: Any, square: bool, recipe: Recipe, size: tuple[int, int]) -> tuple[tuple[int, int], bool]:
    """The size that a processor resizes to, and whether the aspect is given up for it."""
    if isinstance(stored, Mapping) and "shortest_edge" in stored:
        return _pair(stored["shortest_edge"]), False
    if stored is not None:
        return _pair(stored), isinstance(stored, (Mapping, list)) or square
    usual = _transform(recipe, size)
    return usual.resize, usual.squash


def _pair(value: Any) -> tuple[int, int]:
    if isinstance(value, Mapping):
        return int(value["height"]), int(value["width"])
    if isinstance(value, (list, tuple)):
        return int(value[0]), int(value[1])
    return int(value), int(value)


def _floats(values: Any) -> tuple[float, ...]:
    return tuple(float(value) for value in values)
