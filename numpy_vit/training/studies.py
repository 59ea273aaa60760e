"""Studies: questions about a ViT that are answered by training it in a few ways, several times each.

A study has arms.  All of them train the same small model with the same recipe but for what the study asks about, and
with the same seeds, so that a seed's runs begin alike and see the same images in the same order.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from numpy_vit.data import Preprocessing, Split
from numpy_vit.models import vit, vit_config
from numpy_vit.training import classification, loop, paired, teachers
from numpy_vit.training.finite import NotFiniteError
from numpy_vit.training.loop import Row, State
from numpy_vit.training.recipe import Recipe
from numpy_vit.training.recipes import DEFAULTS, RECIPES
from numpy_vit.training.task import Task

DATA = "digits"
VARIANT = "vit_digits_patch2_8"
MODEL: dict[str, Any] = {"depth": 2}  # two blocks learn in half of the epochs that four need
RECIPE = Recipe(epochs=40, batch_size=32, lr=2e-3, weight_decay=0.1, warmup_epochs=2, affine=0.5)
SIDE = 8  # patch sizes are those of images of this side; others are cut into as many patches

_PLAIN: dict[str, Any] = {
    "padding": 0, "flip": False, "affine": 0.0, "crop_scale": None, "auto_augment": None, "color_jitter": 0.0,
    "erase": 0.0, "mixup": 0.0, "cutmix": 0.0,
}  # fmt: skip


@dataclass(frozen=True)
class Arm:
    """What an arm changes: fields of the model's Config, and fields of the recipe; and whether it has a teacher."""

    fields: dict[str, Any] = field(default_factory=dict)
    recipe: dict[str, Any] = field(default_factory=dict)
    taught: bool = False


@dataclass(frozen=True)
class Study:
    """A question in one sentence, and the arms that answer it, by their labels."""

    question: str
    arms: dict[str, Arm]

    @property
    def needs_teacher(self) -> bool:
        """Whether an arm learns from another model."""
        return any(arm.taught for arm in self.arms.values())


STUDIES: dict[str, Study] = {
    "patch-size": Study(
        "Into how many patches should an image be cut?",
        {f"{SIDE // side}x{SIDE // side} patches": Arm({"patch_size": side}) for side in (1, 2, 4)},
    ),
    "heads": Study(
        "Does attention need many narrow heads, or will a wide one do?",
        {f"{count} head{'s' * (count > 1)}": Arm({"num_heads": count}) for count in (1, 2, 4, 8)},
    ),
    "depth": Study(
        "Do more blocks help in the same number of epochs?",
        {f"{count} block{'s' * (count > 1)}": Arm({"depth": count}) for count in (1, 2, 4, 8)},
    ),
    "positions": Study(
        "Does the model have to know where a patch was, and may that be a fixed table?",
        {name: Arm({"pos_embed": name}) for name in ("learned", "sincos_2d_mae", "sincos_2d_simple", "none")},
    ),
    "norm": Study(
        "Should a block normalise before its branches or after the sums, and does either need a warm-up?",
        {
            "pre-norm, warm-up": Arm(),
            "pre-norm, no warm-up": Arm(recipe={"warmup_epochs": 0.0}),
            "post-norm, warm-up": Arm({"block": "post_norm"}),
            "post-norm, no warm-up": Arm({"block": "post_norm"}, {"warmup_epochs": 0.0}),
        },
    ),
    "pooling": Study(
        "What should the head read: a class token, the mean of the patches, or a map by attention?",
        {
            "class token": Arm({"class_token": True, "global_pool": "token"}),
            "mean": Arm({"global_pool": "avg"}),
            "map": Arm({"global_pool": "map"}),
        },
    ),
    "augmentation": Study(
        "Does it help to change the training images a little each time?",
        {"with": Arm(), "without": Arm(recipe=_PLAIN)},
    ),
    "distillation": Study(
        "Does a model learn more from few labelled images if it hears what a better one thinks of them?",
        {
            "labels alone": Arm(),
            "soft targets": Arm(recipe={"distill": "soft", "distill_alpha": 0.9}, taught=True),
            "hard targets": Arm(recipe={"distill": "hard"}, taught=True),
        },
    ),
}


@dataclass(frozen=True)
class Run:
    """A run that has ended.

    Parameters
    ----------
    accuracy : on the test part after the last epoch; nothing was selected on that part
    seconds : of training
    last : the last epoch's row of metrics, {} where none was finished
    not_finite : why the run ended early, where a loss or gradient was not finite
    """

    arm: str
    seed: int
    parameters: int
    accuracy: float
    seconds: float
    last: Row
    not_finite: str | None = None


def recipe(data: str, epochs: int | None = None) -> Recipe:
    """Return the recipe that a study's arms start from; nobody looks at the test part before the end.

    Parameters
    ----------
    data : the data set, as on the command line; all but the digits have the recipe of `numpy-vit train`
    epochs : instead of the recipe's; its warm-up shrinks with a shorter run

    Raises
    ------
    ValueError : fewer epochs than one.
    """
    kind = data.partition(":")[0]
    base = RECIPE if kind == DATA else RECIPES[DEFAULTS.get(kind, "small")].recipe
    epochs = base.epochs if epochs is None else epochs
    warmup = base.warmup_epochs * min(1.0, epochs / base.epochs)
    return replace(base, epochs=epochs, warmup_epochs=warmup, test_every=epochs)


def tasks(study: Study, base: Recipe, data: Split, workers: int = 1, teacher: str | None = None) -> dict[str, Task]:
    """Return what each arm trains, by its label.

    Parameters
    ----------
    teacher : the file or run that the arms which are taught learn from

    Raises
    ------
    ValueError : the images cannot be cut into the study's patches; a teacher is missing, or nobody listens to one.
    DataError : a channel of the images has one value only.
    """
    channels, *image = data.train.shape
    of_data = {"image_size": tuple(image), "in_chans": channels, "num_classes": len(data.train.class_names)}
    preprocessing = Preprocessing.of(data.train)
    if study.needs_teacher != (teacher is not None):
        raise ValueError(
            "the study needs a teacher: train one, and name its run with --teacher"
            if study.needs_teacher
            else "no arm of the study is taught: leave out --teacher"
        )
    taught = None if teacher is None else teachers.teacher(teacher, data.train, preprocessing, workers)
    made = {}
    for label, arm in study.arms.items():
        fields = {"patch_size": 2, **MODEL, **arm.fields}
        patch = tuple(_share(fields["patch_size"], side, image) for side in image)
        with warnings.catch_warnings():
            if "patch_size" in arm.fields:  # that few tokens are too few is for the study to find
                warnings.simplefilter("ignore")
            config = vit_config(VARIANT, **{**fields, **of_data, "patch_size": patch})
        task = Task(classification, vit, config, replace(base, **arm.recipe), data, preprocessing, workers)
        made[label] = replace(task, teacher=taught) if arm.taught else task
    return made


def run(
    arms: Mapping[str, Task],
    seeds: int,
    finished: Collection[tuple[str, int]] = (),
    on_step: Callable[[str, int, State], None] = lambda label, seed, state: None,
) -> Iterator[Run]:
    """Train every arm with the seeds 0, 1, …, and yield each run as it ends.

    All arms run with a seed before the next seed begins: what is there at any time can be compared.

    Parameters
    ----------
    finished : labels and seeds that are left out
    on_step : called after each step with the run's label, seed and state
    """
    for seed in range(seeds):
        for label, task in arms.items():
            if (label, seed) not in finished:
                yield _run(label, replace(task, recipe=replace(task.recipe, seed=seed)), on_step)


def summary(arms: Mapping[str, Task], runs: Sequence[Run]) -> dict[str, Any]:
    """Return what the runs say, as plain values: each arm's spread, and how each differs from the best.

    Parameters
    ----------
    runs : of each arm, with the same seeds

    Raises
    ------
    ValueError : an arm without runs, or with other seeds than the others.
    """
    grouped = {label: sorted((r for r in runs if r.arm == label), key=lambda r: r.seed) for label in arms}
    seeds = {label: [r.seed for r in group] for label, group in grouped.items()}
    if len({tuple(of_arm) for of_arm in seeds.values()}) != 1 or not all(seeds.values()):
        raise ValueError(f"every arm has to run with the same seeds, not {seeds}")
    accuracies = {label: [r.accuracy for r in group] for label, group in grouped.items()}
    best = max(accuracies, key=lambda label: paired.mean(accuracies[label]))
    against = {label: paired.difference(accuracies[label], accuracies[best]) for label in arms if label != best}
    return {
        "seeds": next(iter(seeds.values())),
        "arms": [
            {
                "arm": label,
                "parameters": group[0].parameters,
                "tokens": arms[label].config.num_tokens,
                "accuracies": accuracies[label],
                "mean": paired.mean(accuracies[label]),
                "deviation": paired.deviation(accuracies[label]),
                "least": min(accuracies[label]),
                "greatest": max(accuracies[label]),
                "seconds": paired.mean([r.seconds for r in group]),
                "not_finite": sum(r.not_finite is not None for r in group),
            }
            for label, group in grouped.items()
        ],
        "best": best,
        "against_best": [
            {
                "arm": label,
                "difference": found.mean,
                "half_width": found.half_width,
                "beyond_the_spread": found.beyond_the_spread,
            }
            for label, found in against.items()
        ],
    }


def _share(patch: int, side: int, image: Sequence[int]) -> int:
    """Return the patch's side that is as large a part of an image as `patch` is of one of SIDE."""
    count = SIDE // patch
    if side % count:
        sizes = [str(-(-side // count) * count) for side in image]
        raise ValueError(
            f"images of {'x'.join(map(str, image))} cannot be cut into {count}x{count} patches: "
            f"resize them with --image-size {max(sizes, key=int)}"
        )
    return side // count


def _run(label: str, task: Task, on_step: Callable[[str, int, State], None]) -> Run:
    seed, state = task.recipe.seed, loop.start(task)
    rows: list[Row] = []
    not_finite = None
    try:
        loop.train(task, state, lambda now, _: on_step(label, seed, now), lambda _, row: rows.append(row))
        tested = rows[-1]
    except NotFiniteError as error:
        not_finite = str(error)
        tested = task.goal.test(task, state.best_params)
    last = {key: value if math.isfinite(value) else None for key, value in rows[-1].items()} if rows else {}
    seconds = state.seconds + state.epoch_seconds
    return Run(label, seed, state.flat.size, tested["test_accuracy"], seconds, last, not_finite)
