"""The training loop: epochs of steps, each step a pure function of the state before it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from numpy_vit import tree
from numpy_vit.data import Augmentation, Preprocessing, Split, batch_count, epoch_batches
from numpy_vit.training import clip, ema, groups, schedules
from numpy_vit.training.ahead import ahead
from numpy_vit.training.evaluate import evaluate
from numpy_vit.training.finite import NotFiniteError, first_bad
from numpy_vit.training.recipe import OPTIMIZERS, Recipe
from numpy_vit.training.step import gradients
from numpy_vit.tree import Array, Params

Row = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """What is trained, on what, and how."""

    model: ModuleType
    config: Any
    recipe: Recipe
    data: Split
    preprocessing: Preprocessing
    workers: int = 1

    @property
    def batches(self) -> int:
        """Steps an epoch."""
        return batch_count(len(self.data.train), self.recipe.batch_size)


@dataclass
class State:
    """Where a run stands; with the task it determines everything that comes.

    `params` are views of `flat`, `averaged` of `average` (None without EMA).  `batch` counts the steps of the
    epoch that has begun, whose sums are loss_sum, correct and seen; seconds counts the whole run's training time,
    epoch_seconds the epoch's, of which waited went by until its batches were prepared.
    """

    flat: Array
    params: Params
    optimizer: dict[str, Array]
    average: Array | None
    averaged: Params | None
    epoch: int = 0
    batch: int = 0
    loss_sum: float = 0.0
    correct: int = 0
    seen: int = 0
    seconds: float = 0.0
    epoch_seconds: float = 0.0
    waited: float = 0.0

    @property
    def best_params(self) -> Params:
        """The parameters to evaluate and to save: the averaged ones where there are any."""
        return self.params if self.averaged is None else self.averaged


def start(task: Task) -> State:
    """Return the state before the first step; the parameters follow from the recipe's seed."""
    return begin(task, task.model.init(task.config, np.random.default_rng(task.recipe.seed)))


def begin(task: Task, params: Params) -> State:
    """Return the state before the first step from given parameters, which are copied."""
    order, _ = _groups(task, params)
    flat, packed = tree.pack(params, order)
    average, averaged = (None, None) if task.recipe.ema is None else tree.pack(params, order)
    return State(flat, packed, OPTIMIZERS[task.recipe.optimizer].init(flat), average, averaged)


def train(
    task: Task,
    state: State,
    on_step: Callable[[State, float], None],
    on_epoch: Callable[[State, Row], None],
    should_stop: Callable[[], bool] = lambda: False,
) -> bool:
    """Train from `state` to the recipe's last epoch, changing `state` in place.

    Parameters
    ----------
    on_step : called after each step with the state and the batch's loss
    on_epoch : called after each epoch with the state, which stands before the next one, and the epoch's row
    should_stop : asked before each step

    Returns
    -------
    finished : False where should_stop ended it, between two steps

    Raises
    ------
    NotFiniteError : a loss or gradient is not finite; the parameters are those before the step.
    """
    order, parameter_groups = _groups(task, state.params)
    gradient = tree.pack(tree.map(np.zeros_like, state.params), order)
    while state.epoch < task.recipe.epochs:
        if not _epoch(task, state, gradient, parameter_groups, on_step, should_stop):
            return False
        row = _finish_epoch(task, state)
        on_epoch(state, row)
    return True


def learning_rate(task: Task, step: int) -> float:
    """Return the rate of a step; step 0 is the first."""
    recipe = task.recipe
    total, warmup = recipe.epochs * task.batches, round(recipe.warmup_epochs * task.batches)
    return float(schedules.SCHEDULES[recipe.schedule](step, total, recipe.lr, min(warmup, total - 1), 0.0))


def prepare(task: Task, indices: Array, epoch: int, dtype: Any) -> tuple[Array, Array]:
    """Return the augmented, normalised images and the labels of some training samples."""
    recipe = task.recipe
    batch = task.data.train.take(indices)
    augmentation = Augmentation(recipe.padding, recipe.flip, affine=recipe.affine)
    images = augmentation.apply(batch.images, recipe.seed, epoch, indices)
    return task.preprocessing.apply(images, dtype), batch.labels


def _epoch(
    task: Task,
    state: State,
    gradient: tuple[Array, Params],
    parameter_groups: list[groups.Group],
    on_step: Callable[[State, float], None],
    should_stop: Callable[[], bool],
) -> bool:
    """Train to the epoch's end; False where should_stop ended it."""
    recipe, epoch, dtype = task.recipe, state.epoch, state.flat.dtype
    batches = epoch_batches(len(task.data.train), recipe.batch_size, recipe.seed, epoch, state.batch)
    with ahead(batches, lambda indices: prepare(task, indices, epoch, dtype)) as prepared:
        while state.batch < task.batches:
            if should_stop():
                return False
            began = time.perf_counter()
            images, labels = next(prepared)
            waited = time.perf_counter() - began
            loss = _step(task, state, images, labels, gradient, parameter_groups)
            state.waited += waited
            state.epoch_seconds += time.perf_counter() - began
            on_step(state, loss)
    return True


def _step(
    task: Task,
    state: State,
    images: Array,
    labels: Array,
    gradient: tuple[Array, Params],
    parameter_groups: list[groups.Group],
) -> float:
    recipe, step = task.recipe, state.epoch * task.batches + state.batch
    result = gradients(
        task.model, state.params, task.config, images, labels,
        label_smoothing=recipe.label_smoothing, seed=(recipe.seed, step), workers=task.workers, into=gradient,
    )  # fmt: skip
    norm = clip.global_norm(gradient[0]) if recipe.clip is None else clip.clip_by_global_norm(gradient[0], recipe.clip)
    if not (math.isfinite(result.loss) and math.isfinite(norm)):
        raise NotFiniteError(_explain(task, state, step, result.loss, images, labels))
    rate = learning_rate(task, step)
    groups.apply(
        OPTIMIZERS[recipe.optimizer].update, state.flat, gradient[0], state.optimizer, parameter_groups, rate,
        workers=task.workers, **recipe.hyper,
    )  # fmt: skip
    if state.average is not None and recipe.ema is not None:
        ema.update(state.average, state.flat, ema.decay_at(step, recipe.ema))
    state.batch += 1
    state.loss_sum += result.loss * len(labels)
    state.correct += int((result.logits.argmax(axis=1) == labels).sum())
    state.seen += len(labels)
    return result.loss


def _explain(task: Task, state: State, step: int, loss: float, images: Array, labels: Array) -> str:
    where = first_bad(task.model, state.params, task.config, images, labels)
    found = f"the first tensor that is not finite is {where}" if where else "only dropout's random numbers made it so"
    rate = learning_rate(task, step)
    return (
        f"the loss is {loss} at step {step + 1} (epoch {state.epoch + 1}): {found}; "
        f"try a smaller learning rate than {rate:.3g}, a longer warm-up or clipping"
    )


def _finish_epoch(task: Task, state: State) -> Row:
    test = evaluate(task.model, state.best_params, task.config, task.data.test, task.preprocessing, task.workers)
    state.seconds += state.epoch_seconds
    row: Row = {
        "epoch": state.epoch + 1,
        "train_loss": state.loss_sum / state.seen,
        "train_accuracy": state.correct / state.seen,
        "test_loss": test.loss,
        "test_accuracy": test.accuracy,
        "learning_rate": learning_rate(task, (state.epoch + 1) * task.batches - 1),
        "images_per_second": state.seen / state.epoch_seconds,
        "data_share": state.waited / state.epoch_seconds,
        "seconds": state.seconds,
    }
    state.epoch, state.batch = state.epoch + 1, 0
    state.loss_sum, state.correct, state.seen, state.epoch_seconds, state.waited = 0.0, 0, 0, 0.0, 0.0
    return row


def _groups(task: Task, params: Params) -> tuple[list[str], list[groups.Group]]:
    recipe = task.recipe
    depth = None if recipe.layer_decay is None else task.config.depth
    return groups.parameter_groups(params, recipe.weight_decay, recipe.layer_decay, depth)
