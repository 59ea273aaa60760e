"""numpy-vit eval."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy_vit.cli.progress import Progress, reading
from numpy_vit.cli.usage import UsageError, add_workers, cores, natural, positive, usage

if TYPE_CHECKING:
    from numpy_vit.data.dataset import ImageSet
    from numpy_vit.data.selection import Selection
    from numpy_vit.training.evaluate import Evaluation
    from numpy_vit.tree import Array

_EXAMPLES = """examples:
  numpy-vit eval runs/digits-1
  numpy-vit eval runs/fashion/checkpoint.safetensors --data fashion-mnist --part train --json
  numpy-vit eval runs/digits-1 --part train --logits teacher.npz     for numpy-vit train --teacher teacher.npz
"""


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "eval",
        help="accuracy, per class and with a confusion table",
        description="Evaluate a checkpoint that numpy-vit train wrote: accuracy, top-5, per class, confusion table.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("checkpoint", help="a checkpoint.safetensors, or the folder of a run")
    parser.add_argument(
        "--data",
        metavar="SPEC",
        help="the data set, resized to the model's size (default: the images that its run chose)",
    )
    parser.add_argument("--train-images", type=positive, metavar="N", help="so many of --part train only")
    parser.add_argument("--test-images", type=positive, metavar="N", help="so many of --part test only")
    parser.add_argument(
        "--seed", type=natural, metavar="SEED", help="of that choice: the seed of the run that is meant"
    )
    parser.add_argument("--part", choices=("test", "train"), default="test", help="default: test")
    parser.add_argument("--logits", metavar="FILE", help="write the logits as .npz, for a student to learn from")
    parser.add_argument(
        "--image-size", type=positive, metavar="N", help="side of that student's images (default: as the model's)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    add_workers(parser)
    parser.set_defaults(run=run, one_blas_thread=True)


def run(args: argparse.Namespace) -> int:
    """Evaluate and print."""
    from numpy_vit.checkpoints import own
    from numpy_vit.data import Preprocessing, describe_skipped
    from numpy_vit.errors import CheckpointError, DataError
    from numpy_vit.training.evaluate import judge, predict

    _check(args)
    path = Path(args.checkpoint)
    path = path / "checkpoint.safetensors" if path.is_dir() else path
    checkpoint = own.load(path)
    if not {"data", "preprocessing", "class_names"} <= checkpoint.extra.keys():
        raise CheckpointError(f"{path} lacks preprocessing and class names: it was not written by numpy-vit train")
    if not checkpoint.config.num_classes:
        raise CheckpointError(f"{path} is a model without a head, which classifies nothing: numpy-vit probe {path}")
    spec, names = args.data or checkpoint.extra["data"], checkpoint.extra["class_names"]
    preprocessing = Preprocessing.from_json(checkpoint.extra["preprocessing"])
    progress = Progress()
    with usage():
        selection = _selection(args, path, checkpoint.extra, preprocessing.size)
        data = getattr(selection.load(reading(progress)), args.part)
    progress.clear()
    if len(data.class_names) != len(names):
        raise DataError(
            f"{spec} has {len(data.class_names)} classes, {path} was trained on {len(names)}: choose its data"
        )
    logits = predict(
        checkpoint.model, checkpoint.params, checkpoint.config, data, preprocessing, args.workers or cores(),
        lambda done: progress.line(f"{done:,} of {len(data):,} images"),
    )  # fmt: skip
    progress.clear()
    result = judge(logits, data.labels)
    if args.logits:
        _save(args, path, selection, data, logits)
    if data.skipped:
        print(f"{data.name}: {describe_skipped(data.skipped)}", file=sys.stderr)
    print(
        json.dumps(_as_json(result, spec, args.part, names)) if args.json else _as_text(result, spec, args.part, names)
    )
    return 0


def _check(args: argparse.Namespace) -> None:
    """Refuse what would be ignored, or fail after minutes."""
    if args.image_size and not args.logits:
        raise UsageError("--image-size is that of a student: name the file that it learns from with --logits")
    if args.logits and (Path(args.logits).is_dir() or not Path(args.logits).parent.is_dir()):
        raise UsageError(f"--logits {args.logits} has to be a file in a folder that exists")


def _save(args: argparse.Namespace, path: Path, selection: Selection, data: ImageSet, logits: Array) -> None:
    """Write the logits, with the mark of the images that a student will see."""
    from dataclasses import replace

    import numpy as np

    from numpy_vit.errors import CheckpointError, DataError
    from numpy_vit.training import teachers

    if not np.isfinite(logits).all():
        raise CheckpointError(f"{path} gives logits that are not finite: look at it with numpy-vit inspect")
    if args.image_size:
        data = getattr(replace(selection, image_size=(args.image_size, args.image_size)).load(), args.part)
    if len(data) != len(logits):  # a file turned out broken in one of the sizes only
        raise DataError(f"{data.name} has {len(data):,} images in that size, {len(logits):,} in the model's")
    teachers.save_logits(args.logits, logits, data)


def _selection(args: argparse.Namespace, path: Path, extra: dict[str, Any], size: tuple[int, int]) -> Selection:
    """The images of --data, or those that the run chose, in the model's size."""
    from dataclasses import replace

    from numpy_vit.data.selection import Selection

    of_run = Selection.from_json(extra.get("selection") or _earlier(path, extra["data"]) or {"name": extra["data"]})
    chosen = {field: getattr(args, field) for field in ("train_images", "test_images", "seed")}
    given = {field: value for field, value in chosen.items() if value is not None}
    return replace(Selection(args.data) if args.data else of_run, image_size=size, **given)


def _earlier(path: Path, name: str) -> dict[str, Any] | None:
    """The choice as it stands in the run's config.json: earlier versions wrote it into no checkpoint."""
    from numpy_vit.training.run_folder import CONFIG

    try:
        stored = json.loads((path.parent / CONFIG).read_text("utf-8"))["data"]
    except (OSError, ValueError, LookupError, TypeError):  # none, or another library's
        return None
    return stored if isinstance(stored, dict) and stored.get("name") == name else None


def _as_json(result: Evaluation, spec: str, part: str, names: list[str]) -> dict[str, Any]:
    per_class = {
        name: None if rate != rate else rate for name, rate in zip(names, result.per_class.tolist(), strict=True)
    }
    return {
        "data": spec,
        "part": part,
        "images": int(result.counts.sum()),
        "loss": result.loss,
        "accuracy": result.accuracy,
        "top5": result.top5,
        "per_class": per_class,
        "confusion": result.counts.tolist(),
    }


def _as_text(result: Evaluation, spec: str, part: str, names: list[str]) -> str:
    from numpy_vit.views import table

    show = table.confusion if len(names) <= 20 else table.most_confused
    return (
        f"{spec}, {part} part, {int(result.counts.sum()):,} images: accuracy {result.accuracy:.2%}, "
        f"top-5 {result.top5:.2%}, loss {result.loss:.4f}\n\n{show(result.counts, names)}"
    )
