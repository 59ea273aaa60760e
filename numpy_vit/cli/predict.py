"""numpy-vit predict."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from typing import TYPE_CHECKING, Any

from numpy_vit.cli.usage import positive, usage

if TYPE_CHECKING:
    from pathlib import Path

    from numpy_vit.data.eval_transform import EvalTransform
    from numpy_vit.training.opened import Opened
    from numpy_vit.tree import Array

_EXAMPLES = """examples:
  numpy-vit predict cat.jpg --checkpoint vit_tiny.safetensors
  numpy-vit predict *.png --checkpoint deit.pth --preprocessing deit --top 3 --json
  numpy-vit predict seven.png --checkpoint runs/digits-1
"""


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "predict",
        help="the most probable classes of images",
        description="Classify images with a checkpoint, preprocessed as it was for the model: as the checkpoint says, "
        "or a preprocessor_config.json or config.json beside it, or as is usual where the model comes from. "
        "Exit status 2 if an image cannot be read; the others are classified all the same.",
        epilog=_EXAMPLES,
    )
    parser.add_argument(
        "images",
        nargs="+",
        metavar="IMAGE",
        help="an image file; EXIF orientation is applied for models that numpy-vit trained",
    )
    parser.add_argument("--checkpoint", required=True, metavar="FILE", help="any checkpoint, or the folder of a run")
    parser.add_argument("--top", type=positive, default=5, metavar="N", help="how many classes (default: 5)")
    parser.add_argument("--heads", type=positive, metavar="N", help="attention heads, where the file does not say")
    parser.add_argument("--labels", metavar="FILE", help="the names of the classes, one a line")
    parser.add_argument(
        "--preprocessing",
        metavar="NAME",
        help="that of timm, deit, mae, dino, dinov2, openai-clip, torchvision, google, hf-vit, ... models, or imagenet "
        "for timm's usual with ImageNet's statistics, instead of the checkpoint's",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    parser.set_defaults(run=run, one_blas_thread=False)


def run(args: argparse.Namespace) -> int:
    """Classify and print; 2 if an image could not be read."""
    from numpy_vit.errors import DataError
    from numpy_vit.training.opened import open_model, preprocessing_of
    from numpy_vit.views.table import printable

    with usage():
        opened = open_model(args.checkpoint, **({"num_heads": args.heads} if args.heads else {}))
    names, named_by = names_of(opened, args.labels)
    with usage():
        transform, source = preprocessing_of(opened, args.preprocessing)
    if not args.json:
        print(f"{printable(str(opened.path))}: {opened.family}, {len(names)} classes; their names: {named_by}")
        print(f"preprocessing: {transform}\n  {printable(source)}")
    results: list[dict[str, Any]] = []
    failed = False
    for image in args.images:
        try:
            results.append({"file": image, "top": _top(_logits(opened, transform, image), names, args.top)})
        except DataError as error:
            failed = True
            results.append({"file": image, "error": str(error)})
            print(f"numpy-vit: {error}", file=sys.stderr)
        if not args.json and "top" in results[-1]:
            print(f"\n{printable(image)}\n{_as_text(results[-1]['top'])}", flush=True)
    if args.json:
        about = {"checkpoint": str(opened.path), "family": opened.family, "names": named_by}
        print(json.dumps({**about, "preprocessing": {"from": source, **transform.to_json()}, "images": results}))
    return 2 if failed else 0


def names_of(opened: Opened, labels: str | None) -> tuple[list[str], str]:
    """Return the names of the classes, and where they are from."""
    from numpy_vit.data import class_names
    from numpy_vit.errors import CheckpointError

    count = opened.config.num_classes
    if not count:
        raise CheckpointError(f"{opened.path} has no classification head: it computes features, predict needs classes")
    if labels:
        return class_names.read_names(labels, count), f"from {labels}"
    stored = opened.extra.get("class_names")
    if isinstance(stored, list) and len(stored) == count:
        return [str(name) for name in stored], "from the checkpoint"
    if beside := class_names.names_beside(opened.path, count):
        return beside, "from config.json beside it"
    if count == 1000:
        return class_names.imagenet_names(), "ImageNet's, assumed"
    return [str(i) for i in range(count)], "unknown (--labels FILE gives them)"


def _logits(opened: Opened, transform: EvalTransform, image: str | Path) -> Array:
    from numpy_vit.errors import DataError
    from numpy_vit.training.opened import read_for

    picture = read_for(opened, image)
    try:
        pixels = transform.apply(picture)
    except DataError as error:
        raise DataError(f"{image}: {error}") from error
    logits: Array = opened.model.predict(opened.params, pixels, opened.config)[0]
    return logits


def _top(logits: Array, names: list[str], count: int) -> list[dict[str, Any]]:
    """The most probable classes, the first first; equal ones in the order of their numbers."""
    import numpy as np

    from numpy_vit.errors import CheckpointError
    from numpy_vit.views.likeliest import likeliest

    if not np.isfinite(logits).all():
        raise CheckpointError("the logits are not finite numbers: look at the checkpoint with numpy-vit inspect")
    return [
        {"index": i, "name": names[i], "probability": share, "logit": float(logits[i])}
        for i, share in likeliest(logits, count)
    ]


def _as_text(top: list[dict[str, Any]]) -> str:
    from numpy_vit.views.table import table

    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    rows = [[f"{one['probability']:.1%}", str(one["index"]), one["name"]] for one in top]
    return table(rows, ["share", "index", "class"], "r r l", width)
