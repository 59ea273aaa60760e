"""Training on a handful of images until nothing is left to learn: the first test of any model."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from numpy_vit import tree
from numpy_vit.training import adamw, clip
from numpy_vit.training.finite import NotFiniteError, first_bad
from numpy_vit.training.loop import Task
from numpy_vit.training.objectives import CrossEntropy
from numpy_vit.training.step import gradients
from numpy_vit.tree import Array

LOSS = 0.01
STEPS = 1000
_RATES = ("drop_rate", "pos_drop_rate", "patch_drop_rate", "proj_drop_rate", "attn_drop_rate", "drop_path_rate")


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The last step's loss and accuracy, and how many steps there were; `learned` says whether that is all of it."""

    steps: int
    loss: float
    accuracy: float

    @property
    def learned(self) -> bool:
        """Whether every image is classified and the loss is next to nothing."""
        return self.accuracy == 1 and self.loss < LOSS


def overfit(task: Task, count: int, on_step: Callable[[Outcome], None] = lambda outcome: None) -> Outcome:
    """Train on `count` training images, one batch, until they are learned by heart or STEPS are over.

    Whatever hinders memorising is off: augmentation, dropout, decay, smoothing, schedule.  A model that fails here
    is wrong; one that succeeds here and fails in training wants more data, time or another rate.

    Raises
    ------
    ValueError : more images than there are.
    NotFiniteError : a loss or gradient is not finite.
    """
    train = task.data.train
    if not 1 <= count <= len(train):
        raise ValueError(f"overfit takes 1 to {len(train)} images of this data set, not {count}")
    config = dataclasses.replace(task.config, **dict.fromkeys(_RATES, 0.0))
    images, labels = _some(task, count)
    params = task.model.init(config, np.random.default_rng(task.recipe.seed))
    flat, packed = tree.pack(params)
    gradient = tree.pack(tree.map(np.zeros_like, params))
    state = adamw.init(flat)
    outcome = Outcome(0, float("inf"), 0.0)
    while outcome.steps < STEPS and not outcome.learned:
        result = gradients(task.model, packed, config, images, labels, workers=task.workers, into=gradient)
        norm = clip.clip_by_global_norm(gradient[0], 1.0)
        if not (np.isfinite(result.loss) and np.isfinite(norm)):
            where = first_bad(task.model, packed, config, images, CrossEntropy(labels))
            raise NotFiniteError(f"the loss is {result.loss} at step {outcome.steps + 1}: {where} is not finite")
        outcome = Outcome(outcome.steps + 1, result.loss, float((result.logits.argmax(axis=1) == labels).mean()))
        on_step(outcome)
        rate = task.recipe.lr * min(1.0, outcome.steps / 20)  # 20 steps of warm-up
        adamw.update(flat, gradient[0], state, rate, weight_decay=0.0)
    return outcome


def _some(task: Task, count: int) -> tuple[Array, Array]:
    chosen: Any = np.random.default_rng(task.recipe.seed).permutation(len(task.data.train))[:count]
    part = task.data.train.take(np.sort(chosen))
    return task.preprocessing.apply(part.images), part.labels
