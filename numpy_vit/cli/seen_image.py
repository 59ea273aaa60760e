"""Options and steps that the commands share which look at one image through a model."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy_vit.cli.usage import positive, usage

if TYPE_CHECKING:
    from collections.abc import Callable

    from PIL import Image

    from numpy_vit.data.eval_transform import EvalTransform
    from numpy_vit.training.opened import Opened
    from numpy_vit.tree import Array

_TEST = re.compile(r"test:(\d{1,9})")
IMAGE = "an image file, or test:N, an image of the test part that a run knows"


@dataclass(frozen=True)
class Seen:
    """An image as the model takes it (C, Y, X), and as people see it (Y, X, 3)."""

    pixels: Array
    picture: Array


def add_model(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which model, and how images are prepared for it."""
    parser.add_argument("--checkpoint", required=True, metavar="FILE", help="any checkpoint, or the folder of a run")
    parser.add_argument("--heads", type=positive, metavar="N", help="attention heads, where the file does not say")
    parser.add_argument(
        "--preprocessing", metavar="NAME", help="that of timm, deit, mae, ... models, instead of the checkpoint's"
    )


def open_for(args: argparse.Namespace) -> tuple[Opened, EvalTransform]:
    """Open the checkpoint that the options name, and find out how its images are prepared."""
    from numpy_vit.training.opened import open_model, preprocessing_of

    with usage():
        opened = open_model(args.checkpoint, **({"num_heads": args.heads} if args.heads else {}))
        transform, _ = preprocessing_of(opened, args.preprocessing)
    return opened, transform


def see(image: Image.Image, transform: EvalTransform, name: str) -> Seen:
    """Prepare a picture for the model."""
    from numpy_vit.errors import DataError
    from numpy_vit.views import heat_maps

    try:
        (pixels,) = transform.apply(image)
    except DataError as error:
        raise DataError(f"{name}: {error}") from error
    return Seen(pixels, heat_maps.shown(pixels, transform.mean, transform.std))


def read(name: str, opened: Opened, transform: EvalTransform) -> Seen:
    """Prepare an image file, or test:N, a test image of the data set that the checkpoint was trained on."""
    from numpy_vit.training.opened import read_for

    if (match := _TEST.fullmatch(name)) and not Path(name).exists():
        return _of_test(int(match[1]), opened, transform)
    return see(read_for(opened, name), transform, name)


def _of_test(number: int, opened: Opened, transform: EvalTransform) -> Seen:
    from numpy_vit.cli.progress import Progress, reading
    from numpy_vit.data import load
    from numpy_vit.data.transforms import normalise
    from numpy_vit.errors import CheckpointError, DataError
    from numpy_vit.views import heat_maps

    spec = opened.extra.get("data")
    if not isinstance(spec, str):
        raise CheckpointError(f"{opened.path} does not say which data it was trained on: name an image file")
    progress = Progress()
    test = load(spec, opened.config.image, reading(progress)).test
    progress.clear()
    if number >= len(test):
        raise DataError(f"{spec} has {len(test):,} test images: test:0 to test:{len(test) - 1}")
    images = test.take([number]).images
    if images.shape[1] != opened.config.in_chans:
        raise DataError(
            f"{spec} has images of {images.shape[1]} channels, {opened.path} takes {opened.config.in_chans}"
        )
    (pixels,) = normalise(images, transform.mean, transform.std)
    return Seen(pixels, heat_maps.shown(pixels, transform.mean, transform.std))


def make_folder(path: str) -> Path:
    """Make the folder for the results, and those above it."""
    folder = Path(path).expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def write_picture(path: Path, image: Image.Image) -> None:
    """Write a PNG file, whole or not at all."""
    from numpy_vit.files import replacing

    with replacing(path) as file:
        image.save(file, format="PNG", optimize=True)


def write_arrays(path: Path, **arrays: Any) -> None:
    """Write an npz file, whole or not at all."""
    import numpy as np

    from numpy_vit.files import replacing

    with replacing(path) as file:
        np.savez_compressed(file, **arrays)


def on_lines(found: dict[str, Any], lines: Callable[[dict[str, Any]], str], as_json: bool) -> None:
    """Print one JSON object, or lines for people."""
    import json

    print(json.dumps(found) if as_json else lines(found))
