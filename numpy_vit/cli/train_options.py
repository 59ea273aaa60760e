"""The options of numpy-vit train, and the task that they describe."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from numpy_vit.cli.usage import UsageError, add_workers, positive, usage

if TYPE_CHECKING:
    from numpy_vit.data import Dataset
    from numpy_vit.models.vit import Config
    from numpy_vit.training.loop import Task

_EXAMPLES = """examples:
  numpy-vit train                                         the embedded digits, about a minute
  numpy-vit train --data fashion-mnist --out runs/fashion 60,000 images from Debian's package
  numpy-vit train --data mnist:~/mnist --model vit_mini_patch4_28 --epochs 3
  numpy-vit train --patch-size 1 --embed-dim 48 --set reg_tokens=2 --optimizer sgd --lr 0.1
  numpy-vit train --overfit 32                            can this model learn anything at all?
  numpy-vit train --resume runs/digits-1                  go on, to the same bits
"""

# option: the field of Recipe that it sets, its type, its help
_RECIPE: dict[str, tuple[str, Any, str]] = {
    "--epochs": ("epochs", int, "passes over the training images"),
    "--batch-size": ("batch_size", int, "images a step; it is computed in shards, so memory does not depend on it"),
    "--optimizer": ("optimizer", str, "adamw, adam or sgd"),
    "--lr": ("lr", float, "learning rate after warm-up"),
    "--weight-decay": ("weight_decay", float, "of matrices; biases, norms, tokens and positions are not decayed"),
    "--momentum": ("momentum", float, "of sgd"),
    "--beta1": ("beta1", float, "of adam and adamw"),
    "--beta2": ("beta2", float, "of adam and adamw"),
    "--schedule": ("schedule", str, "cosine, linear or constant, after the warm-up"),
    "--warmup-epochs": ("warmup_epochs", float, "of linear warm-up"),
    "--layer-decay": ("layer_decay", float, "each layer's rate is the next one's times this"),
    "--clip": ("clip", float, "largest norm of the gradient; inf for no clipping"),
    "--label-smoothing": ("label_smoothing", float, "of the targets"),
    "--ema": ("ema", float, "decay of averaged weights, which are then evaluated and saved"),
    "--padding": ("padding", int, "pixels of padding before the random crop"),
    "--affine": ("affine", float, "strength of random rotation, scale, shear and shift; 1 suits handwriting"),
    "--seed": ("seed", int, "of everything random"),
}
_SWITCHES = {
    "--flip": ("flip", "mirror half of the training images"),
    "--nesterov": ("nesterov", "Nesterov's momentum for sgd"),
}
_SIZES = {
    "--patch-size": ("patch_size", "side of a patch"),
    "--embed-dim": ("embed_dim", "width D"),
    "--depth": ("depth", "blocks"),
    "--num-heads": ("num_heads", "attention heads"),
    "--hidden-dim": ("hidden_dim", "hidden width of the MLPs"),
}
_RATES = {
    "--dropout": ("proj_drop_rate", "dropout after the projections and in the MLPs"),
    "--drop-path": ("drop_path_rate", "drop path of the last block"),
}


def add(commands: Any) -> argparse.ArgumentParser:
    """Add the command and its options; options that are not given are not in the namespace's dicts."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "train",
        help="train a ViT",
        description="Train a Vision Transformer. Without options: the embedded 8x8 digits, in about a minute. "
        "What is not given has a default that depends on the data set.",
        epilog=_EXAMPLES,
    )
    parser.add_argument(
        "--data", metavar="SPEC", help="digits, mnist:FOLDER or fashion-mnist[:FOLDER] (default: digits)"
    )
    parser.add_argument("--out", metavar="FOLDER", help="where the run is written (default: runs/DATA-1, -2, ...)")
    parser.add_argument("--resume", metavar="FOLDER", help="go on with a run that was stopped or killed")
    parser.add_argument(
        "--overfit",
        type=positive,
        metavar="N",
        help="learn N training images by heart, write nothing, and say whether it worked",
    )
    add_workers(parser)
    model = parser.add_argument_group("model")
    model.add_argument("--model", metavar="NAME", help="a named variant, such as vit_tiny_patch16_224")
    for option, (field, text) in _SIZES.items():
        model.add_argument(option, dest=field, type=positive, metavar="N", help=text)
    for option, (field, text) in _RATES.items():
        model.add_argument(option, dest=field, type=float, metavar="RATE", help=text)
    model.add_argument(
        "--set", dest="fields", action="append", metavar="FIELD=VALUE",
        help="any other field of vit.Config, such as pos_embed=sincos_2d_mae",
    )  # fmt: skip
    training = parser.add_argument_group("training")
    for option, (field, kind, text) in _RECIPE.items():
        training.add_argument(option, dest=field, type=kind, metavar=kind.__name__.upper(), help=text)
    for option, (field, text) in _SWITCHES.items():
        training.add_argument(option, dest=field, action=argparse.BooleanOptionalAction, help=text)
    return parser


def given(args: argparse.Namespace) -> list[str]:
    """Return the options that --resume takes from the run itself, of those that were given."""
    options = {option: field for table in (_RECIPE, _SWITCHES, _SIZES, _RATES) for option, (field, *_) in table.items()}
    options |= {"--data": "data", "--out": "out", "--overfit": "overfit", "--model": "model", "--set": "fields"}
    return [option for option, field in options.items() if getattr(args, field) is not None]


def task(args: argparse.Namespace, workers: int) -> tuple[Task, str]:
    """Return what the options describe, and the data set's name.

    Raises
    ------
    UsageError : values that cannot be meant.
    DataError : the data set is missing or broken.
    """
    from dataclasses import replace

    from numpy_vit.data import Preprocessing, load
    from numpy_vit.models import vit
    from numpy_vit.training.loop import Task
    from numpy_vit.training.recipe import DEFAULTS

    spec = args.data or "digits"
    data = load(spec)
    variant, recipe = DEFAULTS[spec.partition(":")[0]]
    fields = [field for table in (_RECIPE, _SWITCHES) for field, *_ in table.values()]
    with usage():
        config = _config(args, args.model or variant, data.train)
        recipe = replace(recipe, **_chosen(args, fields, recipe))
    return Task(vit, config, recipe, data, Preprocessing.of(data.train), workers), spec


def _config(args: argparse.Namespace, variant: str, train: Dataset) -> Config:
    """The variant with the data's image size, channels and classes, and the fields that were given."""
    from numpy_vit.models import vit_config

    channels, height, width = train.images.shape[1:]
    of_data = {"image_size": (height, width), "in_chans": channels, "num_classes": len(train.class_names)}
    fields = [field for table in (_SIZES, _RATES) for field, *_ in table.values()]
    chosen = {field: getattr(args, field) for field in fields if getattr(args, field) is not None}
    return vit_config(variant, **{**of_data, **chosen, **dict(_assignment(text) for text in args.fields or [])})


def _chosen(args: argparse.Namespace, fields: list[str], recipe: Any) -> dict[str, Any]:
    """The recipe's fields that were given; a warm-up that was not shrinks with a shorter run."""
    chosen = {field: getattr(args, field) for field in fields if getattr(args, field) is not None}
    if "epochs" in chosen and "warmup_epochs" not in chosen:
        chosen["warmup_epochs"] = min(recipe.warmup_epochs, chosen["epochs"] * recipe.warmup_epochs / recipe.epochs)
    return chosen


def _assignment(text: str) -> tuple[str, Any]:
    """Read reg_tokens=2, qk_norm=true, hidden_dim=null or pos_embed=none."""
    from dataclasses import fields

    from numpy_vit.models.vit import Config

    name, equals, value = text.partition("=")
    known = [field.name for field in fields(Config)]
    if not equals or name not in known:
        raise UsageError(f"--set {text!r} has to be FIELD=VALUE with one of the fields {', '.join(known)}")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value
