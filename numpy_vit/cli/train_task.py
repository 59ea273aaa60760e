"""From the options of numpy-vit train to the task that they describe."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from numpy_vit.cli import training
from numpy_vit.cli.progress import Progress, reading
from numpy_vit.cli.train_options import MODEL_FIELDS, recipe_fields
from numpy_vit.cli.usage import UsageError, usage

if TYPE_CHECKING:
    from numpy_vit.data import Preprocessing
    from numpy_vit.data.dataset import ImageSet
    from numpy_vit.data.selection import Selection
    from numpy_vit.training.loop import Task
    from numpy_vit.training.recipe import Recipe
    from numpy_vit.training.recipes import Named
    from numpy_vit.tree import Params


def task(args: argparse.Namespace, workers: int) -> tuple[Task, Selection, Params | None]:
    """Return what the options describe, the choice of its data, and the parameters to start from, if there are any.

    Raises
    ------
    UsageError : values that cannot be meant.
    DataError : the data set is missing or broken.
    CheckpointError : so is a checkpoint.
    """
    from dataclasses import replace

    from numpy_vit.data import Preprocessing
    from numpy_vit.models import deit, vit
    from numpy_vit.training import classification
    from numpy_vit.training.loop import Task

    _check(args)  # before a minute is spent on reading images
    chosen = recipe(args)
    seed = chosen.recipe.seed
    selection = select(args, seed)
    data = load(selection)
    if args.init:
        config, params, preprocessing = _from_checkpoint(args, chosen, data.train)
    else:
        params, preprocessing = None, Preprocessing.of(data.train)
        with usage():
            config = variant_config(args, chosen, data.train, len(data.train.class_names))
    if args.distilled:
        with usage():
            config = deit.Config(**{**vars(config), "class_token": True, "global_pool": "token", "fc_norm": None})
    model = deit if args.distilled else vit
    with usage():
        made = Task(classification, model, config, chosen.recipe, data, preprocessing, workers)
    return (replace(made, teacher=teacher(args.teacher, made)) if args.teacher else made), selection, params


def _check(args: argparse.Namespace) -> None:
    """Refuse options that contradict each other, or would be ignored."""
    told = [
        f"--{field.replace('_', '-')}"
        for field in ("distill", "distill_alpha", "distill_temperature")
        if getattr(args, field) is not None
    ]
    refused = {
        "--distilled begins a DeiT from nothing: leave out --init": args.distilled and args.init,
        "--init says what the model is: leave out --model": args.init and args.model,
        "--overfit learns from labels alone: leave out --distilled": args.overfit and args.distilled,
        "--overfit learns from labels alone: leave out --teacher": args.overfit and args.teacher,
        "--overfit begins from nothing: leave out --init": args.overfit and args.init,
        "--distilled has a head that learns from a teacher: name it with --teacher": (
            args.distilled and not args.teacher
        ),
        f"{', '.join(told)} is about a teacher: name it with --teacher": told and not args.teacher,
    }
    for text, so in refused.items():
        if so:
            raise UsageError(text)


def recipe(args: argparse.Namespace) -> Named:
    """Return the recipe that was named, or that of the data set, with the fields that were given.

    Raises
    ------
    UsageError : an unknown name, or values that cannot be meant.
    """
    from dataclasses import replace

    from numpy_vit.training.recipes import DEFAULTS, RECIPES

    kind = (args.data or "digits").partition(":")[0]
    name = args.recipe or ("finetune" if getattr(args, "init", None) else DEFAULTS.get(kind, "small"))
    if name not in RECIPES:
        raise UsageError(f"no recipe is called {name!r}: choose one of {', '.join(RECIPES)}")
    return replace(RECIPES[name], recipe=changed(args, RECIPES[name].recipe))


def changed(args: argparse.Namespace, recipe: Recipe) -> Recipe:
    """Return a recipe with the fields that were given.

    Raises
    ------
    UsageError : values that cannot be meant.
    """
    from dataclasses import replace

    given = recipe_fields(args)
    if "epochs" in given and "warmup_epochs" not in given:  # a warm-up that was not given shrinks with a shorter run
        share = given["epochs"] / recipe.epochs
        given["warmup_epochs"] = min(recipe.warmup_epochs, recipe.warmup_epochs * share)
    if "padding" in given or given.get("crop_scale") is not None:  # one crop takes the place of the other
        given = {"padding": 0, "crop_scale": None, **given}
    with usage():
        return replace(recipe, **given)


def describe(args: argparse.Namespace) -> dict[str, Any]:
    """Return the whole recipe as plain values: the model's variant and fields, and every number of the training."""
    from dataclasses import asdict

    named = recipe(args)
    fields = {**named.fields, **_model_fields(args)}
    return {"model": args.model or named.variant or args.init, "fields": fields, "recipe": asdict(named.recipe)}


def select(args: argparse.Namespace, seed: int) -> Selection:
    """Return which images the options choose."""
    from numpy_vit.data.selection import Selection

    size = None if args.image_size is None else (args.image_size, args.image_size)
    return Selection(args.data or "digits", size, args.train_images, args.test_images, seed)


def load(selection: Selection) -> Any:
    """Load the images, show how far that is, and name the files that cannot be read."""
    progress = Progress()
    data = selection.load(reading(progress))
    progress.clear()
    training.say_skipped(data)
    return data


def teacher(spec: str, made: Task) -> Any:
    """Return the teacher that a checkpoint or a file of logits is."""
    from numpy_vit.training import teachers

    return teachers.teacher(spec, made.data.train, made.preprocessing, made.workers)


def _from_checkpoint(
    args: argparse.Namespace, chosen: Named, train: ImageSet
) -> tuple[Any, Params, Preprocessing]:  # fmt: skip
    """The model of --init for other classes and sizes, and the statistics that it was trained with."""
    import numpy as np

    from numpy_vit.data import Preprocessing
    from numpy_vit.errors import DataError
    from numpy_vit.training import finetuning
    from numpy_vit.training.opened import open_model, preprocessing_of

    channels, height, width = train.shape
    fields = {**chosen.fields, **_model_fields(args)}
    with usage():
        heads = {"num_heads": args.num_heads} if args.num_heads else {}  # some files do not say how many there are
        opened = open_model(args.init, image_size=(height, width), **heads)
        if channels != opened.config.in_chans:
            raise DataError(
                f"{args.init} takes images of {opened.config.in_chans} channels, {train.name} has {channels}: "
                "choose other data, or train a model from nothing"
            )
        rng = np.random.default_rng(chosen.recipe.seed)
        config, params = finetuning.with_head(
            opened.model, opened.config, opened.params, len(train.class_names), rng, **fields
        )
    transform, source = preprocessing_of(opened)
    known = source.partition(" (")[0]  # without the hint at an option that only predict has
    print(f"{args.init}: {opened.report.family}, a new head for {len(train.class_names)} classes; statistics {known}")
    return config, params, Preprocessing((height, width), channels, transform.mean, transform.std)


def variant_config(args: argparse.Namespace, chosen: Named, train: ImageSet, num_classes: int) -> Any:
    """Return the variant with the data's image size and channels, so many classes, and the fields that were given."""
    from numpy_vit.models import vit_config

    variant = args.model or chosen.variant
    if variant is None:
        raise UsageError("the recipe trains a checkpoint: name it with --init, or a variant with --model")
    channels, height, width = train.shape
    of_data = {"image_size": (height, width), "in_chans": channels, "num_classes": num_classes}
    return vit_config(variant, **{**of_data, **chosen.fields, **_model_fields(args)})


def _model_fields(args: argparse.Namespace) -> dict[str, Any]:
    """The fields of the model's Config that were given."""
    chosen = {field: getattr(args, field) for field in MODEL_FIELDS if getattr(args, field) is not None}
    return {**chosen, **dict(_assignment(text) for text in args.fields or [])}


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
