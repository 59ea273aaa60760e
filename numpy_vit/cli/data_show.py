"""numpy-vit data show."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from numpy_vit.cli import train_options, train_task, training
from numpy_vit.cli.progress import Progress, reading
from numpy_vit.cli.usage import natural, positive, usage

if TYPE_CHECKING:
    from numpy_vit.data import ImageSet, Split
    from numpy_vit.training.recipe import Recipe
    from numpy_vit.tree import Array

_COLUMNS = 8
_NAMED = 20  # classes that are listed with their number of images

_EXAMPLES = """examples:
  numpy-vit data show digits --out digits.png
  numpy-vit data show folder:photos --image-size 64 --out photos.png
  numpy-vit data show cifar10 --padding 4 --flip --out augmented.png
  numpy-vit data show cifar10 --recipe deit --out deit.png
  numpy-vit data show cifar10 --erase 1 --erase-mode pixel --out erased.png
"""


def add(subcommands: Any) -> None:
    """Add the command to those of `numpy-vit data`."""
    parser = subcommands.add_parser(
        "show",
        help="draw training images on a sheet",
        description="Draw training images of every class on a contact sheet, as a model gets them, and say how many "
        "images and classes there are. With augmentation each row is one image, first as it is, then as epochs see it; "
        "where images are mixed, those of the sheet are the batch: the first row with the last, and so on inwards.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("data", metavar="SPEC", help="the data set, such as digits, shapes or folder:PATH")
    parser.add_argument("--out", required=True, metavar="FILE", help="the PNG file to write")
    parser.add_argument("--count", type=positive, default=40, metavar="N", help="pictures on the sheet (default: 40)")
    parser.add_argument("--image-size", type=positive, metavar="N", help="resize and crop the images to N x N")
    parser.add_argument("--recipe", metavar="NAME", help="augment as a recipe does, such as deit")
    parser.add_argument("--seed", type=natural, default=0, metavar="N", help="of the choice and the augmentation")
    train_options.add_augmentation(parser)
    parser.set_defaults(run=run, one_blas_thread=False)


def run(args: argparse.Namespace) -> int:
    """Draw the sheet and say what is on it."""
    from numpy_vit.data import load
    from numpy_vit.training.recipe import Recipe
    from numpy_vit.views import contact_sheet

    recipe = train_task.recipe(args).recipe if args.recipe else train_task.changed(args, Recipe())
    progress = Progress()
    data = load(args.data, args.image_size, reading(progress))
    progress.clear()
    with usage():
        if any(getattr(recipe, field) != getattr(Recipe, field) for field in train_options.AUGMENTATION_FIELDS):
            images, words = _augmented(data, args.count, recipe)
        else:
            images, words = _plain(data.train, args.count, args.seed)
    contact_sheet.draw(images, words, args.out, _COLUMNS, data.train.name)
    channels, height, width = data.train.shape
    print(
        f"{args.data}: {len(data.train):,} training and {len(data.test):,} test images, {channels}x{height}x{width}, "
        f"{len(data.train.class_names)} classes"
    )
    print(_classes(data.train))
    training.say_skipped(data)
    print(f"wrote {args.out}: {len(images)} pictures")
    return 0


def _plain(train: ImageSet, count: int, seed: int) -> tuple[Array, list[str]]:
    """Images of all classes as equally as can be, one class after the other."""
    chosen = _chosen(train, count, seed)
    part = train.take(chosen)
    return part.images, [train.class_names[label] for label in part.labels]


def _augmented(data: Split, count: int, recipe: Recipe) -> tuple[Array, list[str]]:
    """Rows of one image and what the first epochs make of it, as the batch that the rows are."""
    import numpy as np

    from numpy_vit.data import Preprocessing
    from numpy_vit.models import vit
    from numpy_vit.training import classification
    from numpy_vit.training.task import Task
    from numpy_vit.views.heat_maps import shown

    train, preprocessing = data.train, Preprocessing.of(data.train)
    task = Task(classification, vit, None, recipe, data, preprocessing)  # no batch asks for the model's configuration
    rows = -(-count // _COLUMNS)
    if recipe.mixup or recipe.cutmix:
        rows += rows % 2  # the middle one of an odd batch would be mixed with itself
    chosen = _chosen(train, rows, recipe.seed)
    part = train.take(chosen)
    seen = [classification.prepare(task, chosen, 0, epoch, 0, np.float32) for epoch in range(_COLUMNS - 1)]
    columns = np.stack([preprocessing.apply(part.images), *(batch.images for batch in seen)], axis=1)
    images = columns.reshape(-1, *train.shape)  # row by row
    pictures = np.stack([shown(image, preprocessing.mean, preprocessing.std) for image in images])
    names = [train.class_names[label] for label in part.labels]
    words = [word for name in names for word in (name, *(f"epoch {epoch + 1}" for epoch in range(_COLUMNS - 1)))]
    return pictures.transpose(0, 3, 1, 2), words


def _chosen(train: ImageSet, count: int, seed: int) -> Array:
    """Return the indices of so many images, or of all where there are fewer, ordered by class."""
    import numpy as np

    from numpy_vit.data import balanced_indices

    chosen = balanced_indices(train.labels, min(count, len(train)), seed)
    ordered: Array = chosen[np.argsort(train.labels[chosen], kind="stable")]
    return ordered


def _classes(train: ImageSet) -> str:
    """Name the first classes and say how many training images each has."""
    import numpy as np

    counts = np.bincount(train.labels, minlength=len(train.class_names))
    shown = [f"{name} {count:,}" for name, count in zip(train.class_names, counts.tolist(), strict=True)][:_NAMED]
    more = len(train.class_names) - len(shown)
    return f"training images of each class: {', '.join(shown)}{f' and {more:,} classes more' if more else ''}"
