"""numpy-vit probe."""

from __future__ import annotations

import argparse
import json
import time
from typing import TYPE_CHECKING, Any

from numpy_vit.cli.progress import Progress
from numpy_vit.cli.train_options import add_data
from numpy_vit.cli.usage import add_workers, cores, natural, positive, usage

if TYPE_CHECKING:
    from numpy_vit.data import Preprocessing
    from numpy_vit.data.dataset import ImageSet, Split
    from numpy_vit.tree import Array

_EXAMPLES = """examples:
  numpy-vit probe runs/pretrain-1 --data cifar10
  numpy-vit probe runs/pretrain-1 --data cifar10 --untrained    the same model with random weights
  numpy-vit probe model.safetensors --data folder:~/photos --json
"""


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "probe",
        help="a linear head and nearest neighbours on frozen features",
        description="Compute a checkpoint's features once, train a linear head on them, and ask the nearest "
        "neighbours: how much do the features know of these classes? Nothing of the model changes.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("checkpoint", help="any known checkpoint, or the folder of a run")
    add_data(parser)
    parser.add_argument(
        "--untrained", action="store_true", help="draw the model's weights anew: what the architecture alone is worth"
    )
    parser.add_argument("--seed", type=natural, default=0, help="of --train-images, --test-images and --untrained")
    parser.add_argument("--heads", type=positive, metavar="N", help="attention heads, where the file does not say")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")
    add_workers(parser)
    parser.set_defaults(run=run, one_blas_thread=True)


def run(args: argparse.Namespace) -> int:
    """Probe and print."""
    import numpy as np

    from numpy_vit.cli import train_task
    from numpy_vit.training import probing
    from numpy_vit.training.opened import open_model

    began = time.perf_counter()
    data = train_task.load(train_task.select(args, args.seed))
    with usage():
        heads = {"num_heads": args.heads} if args.heads else {}
        opened = open_model(args.checkpoint, image_size=data.train.shape[1:], **heads)
    params = opened.params
    if args.untrained:
        params = opened.model.init(opened.config, np.random.default_rng(args.seed))
    preprocessing = _preprocessing(opened, data.train)
    progress, workers = Progress(), args.workers or cores()

    def features(part: ImageSet) -> Array:
        return probing.features(
            opened.model, params, opened.config, part, preprocessing, workers,
            lambda done: progress.line(f"features of {done:,} of {len(part):,} images"),
        )  # fmt: skip

    train, test = features(data.train), features(data.test)
    progress.line("training the head")
    classes = len(data.train.class_names)
    probe = probing.linear_probe(train, data.train.labels, test, data.test.labels, classes)
    near = float((probing.nearest(train, data.train.labels, test, classes) == data.test.labels).mean())
    progress.clear()
    found = {
        "data": args.data or "digits",
        "train_images": len(train),
        "test_images": len(test),
        "features": train.shape[1],
        "untrained": args.untrained,
        "linear_accuracy": probe.accuracy,
        "linear_train_accuracy": probe.train_accuracy,
        "weight_decay": probe.weight_decay,
        "neighbours_accuracy": near,
        "seconds": time.perf_counter() - began,
    }
    print(json.dumps(found) if args.json else _as_text(found, data))
    return 0


def _preprocessing(opened: Any, train: ImageSet) -> Preprocessing:
    from numpy_vit.data import Preprocessing
    from numpy_vit.errors import DataError
    from numpy_vit.training.opened import preprocessing_of

    channels, height, width = train.shape
    if channels != opened.config.in_chans:
        raise DataError(
            f"{opened.path} takes images of {opened.config.in_chans} channels, {train.name} has {channels}: "
            "choose other data"
        )
    transform, _ = preprocessing_of(opened)
    return Preprocessing((height, width), channels, transform.mean, transform.std)


def _as_text(found: dict[str, Any], data: Split) -> str:
    untrained = " of the untrained model" if found["untrained"] else ""
    return (
        f"{data.train.name}: {found['train_images']:,} training and {found['test_images']:,} test images, "
        f"{found['features']} features each{untrained}\n"
        f"linear head: test accuracy {found['linear_accuracy']:.2%} (training {found['linear_train_accuracy']:.2%}, "
        f"weight decay {found['weight_decay']:g})\n"
        f"20 nearest neighbours: test accuracy {found['neighbours_accuracy']:.2%}\n"
        f"{found['seconds']:.0f} s"
    )
