"""A checkpoint that was named on the command line, and how pictures are prepared for it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from PIL import Image

from numpy_vit.checkpoints.load import load
from numpy_vit.checkpoints.report import Report
from numpy_vit.data import published
from numpy_vit.data.eval_transform import EvalTransform
from numpy_vit.data.image_files import MODES, read_image, read_turned
from numpy_vit.errors import CheckpointError, DataError
from numpy_vit.models.vit_config import Config
from numpy_vit.tree import Params


@dataclass(frozen=True)
class Opened:
    """A model and what its file says about it.

    `family` is a key of published.RECIPES; `extra` is what `numpy-vit train` added.
    """

    path: Path
    model: ModuleType
    config: Config
    params: Params
    family: str
    extra: dict[str, Any]
    report: Report


def checkpoint_path(name: str | os.PathLike[str]) -> Path:
    """Return the file: `name` itself, or the checkpoint in the folder of a run."""
    path = Path(name)
    return path / "checkpoint.safetensors" if (path / "checkpoint.safetensors").is_file() else path


def open_model(name: str | os.PathLike[str], **overrides: Any) -> Opened:
    """Load a checkpoint that a command was given.

    Parameters
    ----------
    name : a file, or the folder of a run
    overrides : fields of Config that the file does not say, such as num_heads

    Raises
    ------
    CheckpointError : the file is missing, broken or of no known layout.
    ValueError : overrides that contradict each other or the file.
    """
    loaded = load(checkpoint_path(name), **overrides)
    path, family = Path(loaded.report.path), loaded.report.family
    return Opened(path, loaded.model, loaded.config, loaded.params, family, loaded.extra, loaded.report)


def read_for(opened: Opened, path: str | os.PathLike[str], channels: int | None = None) -> Image.Image:
    """Read a picture as those were read that the model was trained on.

    `numpy-vit train` turns photographs upright as their EXIF orientation says; timm and torchvision do not.

    Parameters
    ----------
    channels : 1 or 3; None for the model's own

    Raises
    ------
    DataError : the file is missing, broken or no image.
    """
    read = read_turned if "preprocessing" in opened.extra else read_image
    return read(path, channels or opened.config.in_chans)


def preprocessing_of(opened: Opened, name: str | None = None) -> tuple[EvalTransform, str]:
    """Return what is done to pictures before the model sees them, and where that is known from.

    The name that is asked for; or else what the checkpoint says, a JSON file beside it, the family's custom.

    Parameters
    ----------
    name : a key of published.RECIPES

    Raises
    ------
    CheckpointError : a model for other than 1 or 3 channels.
    DataError : stored preprocessing that is damaged, or none that anybody knows.
    ValueError : an unknown name.
    """
    size, channels = opened.config.image, opened.config.in_chans
    if channels not in MODES:
        raise CheckpointError(f"{opened.path} takes {channels} channels: image files give 1 (grey) or 3 (RGB)")
    if name:
        transform, source = published.named(name, size), f"of {name} models, as asked for"
    elif "preprocessing" in opened.extra:
        transform, source = EvalTransform.of_training(opened.extra["preprocessing"]), "from the checkpoint"
    elif (family := opened.extra.get("prepared_as")) in published.RECIPES:
        transform, source = published.named(family, size), f"of {family} models, from the checkpoint's metadata"
    elif found := published.beside(opened.path, size):
        transform, source = found[0], f"from {found[1]}"
    elif opened.family not in published.RECIPES:
        raise DataError(
            f"{opened.path} does not say how its images are normalised: put a preprocessor_config.json beside it"
        )
    else:
        transform = published.named(opened.family, size)
        source = f"assumed, as usual for {opened.family} models (--preprocessing NAME for another)"
    return transform.for_channels(channels), source
