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


def open_for_weights(name: str) -> Opened:
    """Open a checkpoint of which weights are shown that heads do not touch: a file need not say how many there are."""
    from numpy_vit.errors import CheckpointError
    from numpy_vit.training.opened import open_model

    with usage():
        try:
            return open_model(name)
        except CheckpointError as error:
            try:
                return open_model(name, num_heads=1)
            except (CheckpointError, ValueError):  # it was not the heads
                raise error from None


def demand_finite(values: Array, what: str, opened: Opened) -> None:
    """Raise CheckpointError where the numbers that are to be drawn are not finite, as those of a broken model."""
    import numpy as np

    from numpy_vit.errors import CheckpointError

    if not np.isfinite(values).all():
        raise CheckpointError(
            f"{opened.path}: {what} are not finite numbers: look at the checkpoint with numpy-vit inspect"
        )


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

    if (number := _number(name)) is not None:
        return _of_test(number, opened, transform)
    return see(read_for(opened, name), transform, name)


def read_mask(path: str, name: str, opened: Opened, transform: EvalTransform) -> Array:
    """Read a mask that is drawn over the image `name`: how much of each of the model's pixels is white, (Y, X), 0 … 1.

    It is as large as the image file, and is cut as that is; over test:N it has the size of the model's images.
    """
    import numpy as np

    from numpy_vit.errors import DataError
    from numpy_vit.training.opened import read_for

    of_test = _number(name) is not None
    mask = read_for(opened, path, 1)
    width, height = opened.config.image[::-1] if of_test else read_for(opened, name).size
    if mask.size != (width, height):
        raise DataError(
            f"{path} has {mask.width}x{mask.height} pixels, {name} {width}x{height}: draw the mask over the whole image"
        )
    return np.asarray(mask if of_test else transform.crop(mask), np.float64) / 255


def _number(name: str) -> int | None:
    """The number N of test:N; None for a file, which may bear such a name."""
    match = _TEST.fullmatch(name)
    return int(match[1]) if match and not Path(name).exists() else None


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
