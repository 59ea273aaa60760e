"""numpy-vit pretrain."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy_vit.cli import train_options, train_task, training
from numpy_vit.cli.progress import Progress, reading
from numpy_vit.cli.usage import UsageError, add_workers, cores, positive, usage

if TYPE_CHECKING:
    from numpy_vit.data.dataset import ImageSet
    from numpy_vit.training.loop import State, Task
    from numpy_vit.training.run_folder import RunFolder

_EXAMPLES = """examples:
  numpy-vit pretrain --data cifar10 --epochs 60
  numpy-vit pretrain --data folder:~/photos --image-size 64 --patch-size 8 --mask-ratio 0.6
  numpy-vit pretrain --resume runs/pretrain-1
  numpy-vit probe runs/pretrain-1 --data cifar10                what the features know
  numpy-vit train --init runs/pretrain-1 --data cifar10         fine-tune them
"""
_DECODER = {"decoder_embed_dim": "width", "decoder_depth": "blocks", "decoder_num_heads": "heads"}
_MODEL = (*_DECODER, "mask_ratio", "norm_pix_loss")  # fields of mae.Config besides the encoder
# Fields of a recipe that are about labels, or about a model that sees every patch.
_UNUSED = (
    "patch_drop", "patch_drop_until", "patch_drop_steps", "layer_decay", "label_smoothing", "mixup", "cutmix", "erase",
    "erase_mode", "distill", "distill_alpha", "distill_temperature",
)  # fmt: skip
_MASKS = 8  # images in the picture of reconstructions
PICTURE = "reconstruction.png"


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "pretrain",
        help="train a ViT without labels, as a masked autoencoder",
        description="Train a Vision Transformer without labels: three quarters of each image's patches are removed, "
        "and the model predicts their pixels from the others (He et al. 2022). The run's checkpoint is the encoder, "
        "an ordinary ViT without a head; reconstruction.png shows what the model makes of test images.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("--out", metavar="FOLDER", help="where the run is written (default: runs/pretrain-1, -2, ...)")
    parser.add_argument("--resume", metavar="FOLDER", help="go on with a run that was stopped or killed")
    parser.add_argument("--recipe", metavar="NAME", default=None, help="default: mae")
    parser.add_argument("--print-recipe", action="store_true", help="print the whole recipe as JSON and stop")
    add_workers(parser)
    train_options.add_data(parser.add_argument_group("data"))
    model = parser.add_argument_group("model")
    train_options.add_model(model)
    model.add_argument("--mask-ratio", type=float, metavar="RATIO", help="part of the patches that is removed (0.75)")
    model.add_argument(
        "--norm-pix-loss", action=argparse.BooleanOptionalAction, help="normalise each patch's target (yes)"
    )
    for field, text in _DECODER.items():
        model.add_argument(_option(field), type=positive, metavar="N", help=f"the decoder's {text}")
    train_options.add_training(parser)
    parser.set_defaults(run=run, one_blas_thread=True, init=None)


def run(args: argparse.Namespace) -> int:
    """Pre-train or resume; return the exit status."""
    from numpy_vit.training.finite import NotFiniteError

    own = [_option(field) for field in _MODEL if getattr(args, field) is not None]
    if args.resume and (given := train_options.given(args) + own):
        raise UsageError(f"--resume goes on with the run's own options: leave out {', '.join(given)}")
    if given := [_option(field) for field in _UNUSED if getattr(args, field) is not None]:
        raise UsageError(f"a masked autoencoder has no use for {', '.join(given)}: leave it out")
    args.recipe = args.recipe or "mae"
    if args.print_recipe:
        print(json.dumps(_describe(args), indent=2))
        return 0
    workers = args.workers or cores()
    try:
        return _resume(args, workers) if args.resume else _begin(args, workers)
    except NotFiniteError as error:
        print(f"numpy-vit pretrain: {error}", file=sys.stderr)
        return 1


def _begin(args: argparse.Namespace, workers: int) -> int:
    from dataclasses import replace

    from numpy_vit.data import Preprocessing
    from numpy_vit.models import mae
    from numpy_vit.training import loop, reconstruction
    from numpy_vit.training.recipe import Recipe
    from numpy_vit.training.run_folder import RunFolder

    chosen = train_task.recipe(args)
    selection = train_task.select(args, chosen.recipe.seed)
    data = train_task.load(selection)
    recipe = replace(chosen.recipe, **{field: getattr(Recipe, field) for field in _UNUSED})
    with usage():
        encoder = train_task.variant_config(args, chosen, data.train, num_classes=0)
        config = mae.Config(encoder, **_given(args))
        task = loop.Task(reconstruction, mae, config, recipe, data, Preprocessing.of(data.train), workers)
        state = loop.start(task)
    folder = RunFolder(Path(args.out) if args.out else training.new_folder("pretrain"), selection)
    folder.create(task)
    folder.save(task, state)
    return _train(folder, task, state)


def _describe(args: argparse.Namespace) -> dict[str, Any]:
    """The whole recipe, without what a masked autoencoder has no use for, and what it has besides."""
    from numpy_vit.models import mae

    about = train_task.describe(args)
    about["recipe"] = {field: value for field, value in about["recipe"].items() if field not in _UNUSED}
    return {**about, "autoencoder": {field: getattr(mae.Config, field) for field in _MODEL} | _given(args)}


def _given(args: argparse.Namespace) -> dict[str, Any]:
    """The fields of mae.Config that were given."""
    return {field: getattr(args, field) for field in _MODEL if getattr(args, field) is not None}


def _option(field: str) -> str:
    return f"--{field.replace('_', '-')}"


def _resume(args: argparse.Namespace, workers: int) -> int:
    from numpy_vit.training import reconstruction
    from numpy_vit.training.run_folder import resume

    progress = Progress()
    folder, task, state = resume(Path(args.resume), workers, reading(progress))
    progress.clear()
    if task.goal is not reconstruction:
        raise UsageError(f"{args.resume} is not a pre-training: go on with numpy-vit train --resume {args.resume}")
    return _train(folder, task, state)


def _train(folder: RunFolder, task: Task, state: State) -> int:
    status = 0 if state.epoch >= task.recipe.epochs else training.train(folder, task, state)
    if status == 0:
        path = folder.path / PICTURE
        draw(task, state, task.data.test, path)
        print(f"original, masked and reconstructed test images: {path}")
    return status


def draw(task: Task, state: State, images: ImageSet, path: Path) -> None:
    """Write a picture of a few images, what the model sees of them, and what it makes of that."""
    import numpy as np

    from numpy_vit.views import reconstruction

    count = min(_MASKS, len(images))
    chosen = np.linspace(0, len(images) - 1, count).astype(int)
    noise = np.random.default_rng(task.recipe.seed).random((count, task.config.encoder.num_patches), np.float32)
    pixels = images.take(chosen).images
    reconstruction.draw(state.best_params, pixels, task.config, noise, task.preprocessing, path)
