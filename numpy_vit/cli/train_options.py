"""The options of numpy-vit train."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from enum import Enum
from typing import Any

from numpy_vit.cli.usage import add_workers, positive

_EXAMPLES = """examples:
  numpy-vit train                                         the embedded digits, about a minute
  numpy-vit train --data fashion-mnist --out runs/fashion 60,000 images from Debian's package
  numpy-vit train --data cifar10:~/cifar --recipe deit --epochs 50
  numpy-vit train --data folder:~/photos --image-size 64  a sub-folder a class
  numpy-vit train --init vit_tiny.safetensors --data folder:~/photos --freeze stem,blocks.[0-5]
  numpy-vit train --patch-size 1 --embed-dim 48 --set reg_tokens=2 --optimizer sgd --lr 0.1
  numpy-vit train --recipe deit --print-recipe            every number of a recipe
  numpy-vit train --overfit 32                            can this model learn anything at all?
  numpy-vit train --resume runs/digits-1                  go on, to the same bits
"""

# option: the field of Recipe that it sets, its type, its help
_OPTIMISATION: dict[str, tuple[str, Any, str]] = {
    "--epochs": ("epochs", int, "passes over the training images"),
    "--batch-size": ("batch_size", int, "images a step; it is computed in shards, so memory does not depend on it"),
    "--repeats": ("repeats", int, "times that a sample comes in an epoch in which it comes"),
    "--optimizer": ("optimizer", str, "adamw, adam, sgd or muon"),
    "--lr": ("lr", float, "learning rate after warm-up"),
    "--weight-decay": ("weight_decay", float, "of matrices; biases, norms, tokens and positions are not decayed"),
    "--momentum": ("momentum", float, "of sgd and muon"),
    "--beta1": ("beta1", float, "of adam, adamw and muon"),
    "--beta2": ("beta2", float, "of adam, adamw and muon"),
    "--schedule": ("schedule", str, "cosine, linear or constant, after the warm-up"),
    "--warmup-epochs": ("warmup_epochs", float, "of linear warm-up"),
    "--layer-decay": ("layer_decay", float, "each layer's rate is the next one's times this"),
    "--clip": ("clip", float, "largest norm of the gradient"),
    "--label-smoothing": ("label_smoothing", float, "of the targets"),
    "--ema": ("ema", float, "decay of averaged weights, which are then evaluated and saved"),
    "--freeze": ("freeze", str, "parameters that stay as they are: stem,blocks.0 or body (all but the head)"),
    "--patch-drop": ("patch_drop", float, "share of the patches that is dropped at first: the time falls with it"),
    "--patch-drop-until": ("patch_drop_until", float, "share of the epochs after which none is dropped any more"),
    "--patch-drop-steps": ("patch_drop_steps", int, "equal steps in which the share falls to none until then"),
    "--test-every": ("test_every", int, "epochs between two looks at the test part"),
    "--distill": ("distill", str, "soft or hard, for --teacher"),
    "--distill-alpha": ("distill_alpha", float, "weight of the teacher's part of the loss"),
    "--distill-temperature": ("distill_temperature", float, "of the soft targets"),
    "--seed": ("seed", int, "of everything random"),
}
_AUGMENTATION: dict[str, tuple[str, Any, str]] = {
    "--padding": ("padding", int, "pixels of padding before the random crop"),
    "--pad-mode": ("pad_mode", str, "constant (black) or reflect"),
    "--crop-scale": ("crop_scale", float, "smallest share of the area that a random resized crop takes"),
    "--affine": ("affine", float, "strength of random rotation, scale, shear and shift; 1 suits handwriting"),
    "--auto-augment": ("auto_augment", str, "RandAugment as rand-m9-mstd0.5-inc1, or 3-Augment as 3a"),
    "--color-jitter": ("color_jitter", float, "strength of random brightness, contrast and saturation"),
    "--erase": ("erase", float, "share of the images that lose a random box"),
    "--erase-mode": ("erase_mode", str, "what the box becomes: const (the mean colour) or pixel (noise)"),
    "--mixup": ("mixup", float, "alpha of Mixup; 0.8 is usual"),
    "--cutmix": ("cutmix", float, "alpha of CutMix; 1 is usual"),
}
# Fields that a recipe may leave unset: the word none takes back what it sets.
_MAY_BE_NONE = ("layer_decay", "clip", "ema", "freeze", "crop_scale", "auto_augment")
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
_DATA = {
    "--image-size": ("image_size", "side that the images are resized to"),
    "--train-images": ("train_images", "train on so many images only, as many of each class"),
    "--test-images": ("test_images", "test on so many images only"),
}

AUGMENTATION_FIELDS = [*(field for field, *_ in _AUGMENTATION.values()), "flip"]
RECIPE_FIELDS = [*(field for field, *_ in _OPTIMISATION.values()), "nesterov", *AUGMENTATION_FIELDS]
MODEL_FIELDS = [field for table in (_SIZES, _RATES) for field, *_ in table.values()]


class _Word(Enum):
    """What an option holds that was given as a word instead of a value; one that was not given holds None."""

    NONE = "none"


def add(commands: Any) -> argparse.ArgumentParser:
    """Add the command and its options; options that are not given are None."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "train",
        help="train a ViT, or fine-tune a checkpoint",
        description="Train a Vision Transformer, or fine-tune one. Without options: the embedded 8x8 digits, in about "
        "a minute. What is not given comes from a recipe, which the data set chooses unless --recipe does.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("--out", metavar="FOLDER", help="where the run is written (default: runs/DATA-1, -2, ...)")
    parser.add_argument("--resume", metavar="FOLDER", help="go on with a run that was stopped or killed")
    parser.add_argument(
        "--overfit",
        type=positive,
        metavar="N",
        help="learn N training images by heart, write nothing, and say whether it worked",
    )
    parser.add_argument("--recipe", metavar="NAME", help="digits, fashion, cifar10, deit, mae, finetune, ...")
    parser.add_argument("--print-recipe", action="store_true", help="print the whole recipe as JSON and stop")
    add_workers(parser)
    data = parser.add_argument_group("data")
    add_data(data)
    model = parser.add_argument_group("model")
    add_model(model)
    model.add_argument(
        "--init", metavar="CHECKPOINT", help="start from these weights, with a new head and resized positions"
    )
    model.add_argument(
        "--distilled", action=argparse.BooleanOptionalAction,
        help="a DeiT: a second token and head that learn from the teacher",
    )  # fmt: skip
    model.add_argument("--teacher", metavar="FILE", help="a checkpoint, or saved logits, that is learned from as well")
    add_training(parser)
    return parser


def add_data(group: Any) -> None:
    """Add --data and what is taken of it."""
    group.add_argument(
        "--data",
        metavar="SPEC",
        help="digits, mnist:FOLDER, fashion-mnist[:FOLDER], cifar10[:FOLDER], cifar100[:FOLDER], folder:FOLDER, "
        "shapes[:N] (default: digits)",
    )
    for option, (field, text) in _DATA.items():
        group.add_argument(option, dest=field, type=positive, metavar="N", help=text)


def add_model(group: Any) -> None:
    """Add --model and the options that set the fields of its Config."""
    group.add_argument("--model", metavar="NAME", help="a named variant, such as vit_tiny_patch16_224")
    for option, (field, text) in _SIZES.items():
        group.add_argument(option, dest=field, type=positive, metavar="N", help=text)
    for option, (field, text) in _RATES.items():
        group.add_argument(option, dest=field, type=float, metavar="RATE", help=text)
    group.add_argument(
        "--set", dest="fields", action="append", metavar="FIELD=VALUE",
        help="any other field of vit.Config, such as pos_embed=sincos_2d_mae",
    )  # fmt: skip


def add_training(parser: argparse.ArgumentParser) -> None:
    """Add the options that set the fields of a recipe."""
    group = _add_table(parser, "training", _OPTIMISATION)
    group.add_argument(
        "--nesterov", action=argparse.BooleanOptionalAction, default=None, help="Nesterov's momentum for sgd"
    )
    add_augmentation(parser)


def add_augmentation(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what is done to the training images."""
    group = _add_table(parser, "augmentation", _AUGMENTATION)
    group.add_argument(
        "--flip", action=argparse.BooleanOptionalAction, default=None, help="mirror half of the training images"
    )


def _add_table(parser: argparse.ArgumentParser, title: str, table: dict[str, tuple[str, Any, str]]) -> Any:
    """Add a table's options as a group, and return the group."""
    unset = [option for option, (field, *_) in table.items() if field in _MAY_BE_NONE]
    group = parser.add_argument_group(title, f"none turns off what a recipe sets of {', '.join(unset)}.")
    for option, (field, kind, text) in table.items():
        metavar, parse = kind.__name__.upper(), _or_none(kind) if field in _MAY_BE_NONE else kind
        group.add_argument(option, dest=field, type=parse, metavar=metavar, help=text)
    return group


def _or_none(kind: type) -> Callable[[str], Any]:
    """Return an argparse type that takes the word none as well as values of a kind."""

    def parse(text: str) -> Any:
        return _Word.NONE if text == _Word.NONE.value else kind(text)

    parse.__name__ = f"{kind.__name__} or none"  # which argparse's error names
    return parse


def recipe_fields(args: argparse.Namespace) -> dict[str, Any]:
    """Return the fields of a recipe that were given, None for those that the word none turns off."""
    found = {field: getattr(args, field, None) for field in RECIPE_FIELDS}
    return {field: None if value is _Word.NONE else value for field, value in found.items() if value is not None}


def given(args: argparse.Namespace) -> list[str]:
    """Return the options that --resume takes from the run itself, of those that were given."""
    tables = (_OPTIMISATION, _AUGMENTATION, _SIZES, _RATES, _DATA)
    options = {option: field for table in tables for option, (field, *_) in table.items()}
    options |= {f"--{name}": name for name in ("data", "out", "overfit", "model", "recipe", "init", "teacher")}
    options |= {"--set": "fields", **{f"--{name}": name for name in ("distilled", "flip", "nesterov")}}
    return [option for option, field in options.items() if getattr(args, field, None) is not None]
