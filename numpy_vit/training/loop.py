"""The training loop: epochs of steps, each step a pure function of the state before it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import numpy as np

from numpy_vit import tree
from numpy_vit.data import epoch_batches
from numpy_vit.data.batches import repeated_batches
from numpy_vit.training import clip, ema, groups, muon, schedules
from numpy_vit.training.ahead import ahead
from numpy_vit.training.finite import NotFiniteError
from numpy_vit.training.freezing import frozen_names, training_form
from numpy_vit.training.recipe import OPTIMIZERS
from numpy_vit.training.task import Task
from numpy_vit.tree import Array, Params

__all__ = ["Row", "State", "Task", "begin", "learning_rate", "start", "train"]

Row = dict[str, Any]


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
    order, parameter_groups = _groups(task, params)
    flat, packed = tree.pack(params, order)
    average, averaged = (None, None) if task.recipe.ema is None else tree.pack(params, order)
    learning = flat[: parameter_groups[-1].stop]
    return State(flat, packed, OPTIMIZERS[task.recipe.optimizer].init(learning), average, averaged)


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
    step = _Step(task, state)
    while state.epoch < task.recipe.epochs:
        if not _epoch(task, state, step, on_step, should_stop):
            return False
        row = _finish_epoch(task, state)
        on_epoch(state, row)
    return True


def learning_rate(task: Task, step: int) -> float:
    """Return the rate of a step; step 0 is the first."""
    recipe = task.recipe
    total, warmup = recipe.epochs * task.batches, round(recipe.warmup_epochs * task.batches)
    return float(schedules.SCHEDULES[recipe.schedule](step, total, recipe.lr, min(warmup, total - 1), 0.0))


def batches(task: Task, epoch: int, start: int) -> Iterator[tuple[int, Array, Array | int]]:
    """Yield the number, the samples and their repeat numbers of an epoch's batches, from batch `start` on."""
    recipe, n = task.recipe, len(task.data.train)
    if recipe.repeats == 1:
        indices = epoch_batches(n, recipe.batch_size, recipe.seed, epoch, start)
        yield from ((number, chosen, 0) for number, chosen in enumerate(indices, start))
    else:
        repeated = repeated_batches(n, recipe.batch_size, recipe.seed, epoch, recipe.repeats, start)
        yield from ((number, *chosen) for number, chosen in enumerate(repeated, start))


def _epoch(
    task: Task,
    state: State,
    step: _Step,
    on_step: Callable[[State, float], None],
    should_stop: Callable[[], bool],
) -> bool:
    """Train to the epoch's end; False where should_stop ended it."""
    epoch, dtype = state.epoch, state.flat.dtype

    def prepare(item: tuple[int, Array, Array | int]) -> Any:
        number, indices, repeats = item
        return task.goal.prepare(task, indices, repeats, epoch, number, dtype)

    with ahead(batches(task, epoch, state.batch), prepare) as prepared:
        while state.batch < task.batches:
            if should_stop():
                return False
            began = time.perf_counter()
            batch = next(prepared)
            waited = time.perf_counter() - began
            loss = step.make(batch)
            state.waited += waited
            state.epoch_seconds += time.perf_counter() - began
            on_step(state, loss)
    return True


class _Step:
    """One step after the other, each with the same buffers."""

    def __init__(self, task: Task, state: State) -> None:
        self.task, self.state = task, state
        order, self.groups = _groups(task, state.params)
        self.stop = self.groups[-1].stop  # behind it lies what is frozen
        named = tree.flatten(state.params)
        frozen = frozen_names(named, task.recipe.freeze)
        learning = {name: np.zeros_like(named[name]) for name in order if name not in frozen}
        self.gradient = tree.pack(tree.unflatten(learning), list(learning))
        self.form = training_form(task.model, task.config, named, frozen)

    def make(self, batch: Any) -> float:
        """Change the parameters by a batch, and return its loss."""
        task, state, recipe = self.task, self.state, self.task.recipe
        step = state.epoch * task.batches + state.batch
        found = task.goal.gradients(task, self._form(), state.params, batch, (recipe.seed, step), self.gradient)
        buffer = self.gradient[0]
        norm = clip.global_norm(buffer) if recipe.clip is None else clip.clip_by_global_norm(buffer, recipe.clip)
        rate = learning_rate(task, step)
        if not (math.isfinite(found.loss) and math.isfinite(norm)):
            raise NotFiniteError(_explain(task, state, step, found.loss, batch))
        groups.apply(
            OPTIMIZERS[recipe.optimizer].update, state.flat[: self.stop], buffer, state.optimizer, self.groups, rate,
            workers=task.workers, update_matrix=recipe.update_matrix, **recipe.hyper,
        )  # fmt: skip
        if state.average is not None and recipe.ema is not None:
            ema.update(state.average, state.flat, ema.decay_at(step, recipe.ema))
        state.batch += 1
        state.loss_sum += found.loss * len(batch)
        state.correct += found.correct
        state.seen += len(batch)
        return float(found.loss)

    def _form(self) -> tuple[ModuleType, Any]:
        """The model's form and configuration in this epoch, with as many patches as the recipe leaves in it."""
        model, config = self.form
        rate = self.task.recipe.patch_drop_in(self.state.epoch)
        return model, replace(config, patch_drop_rate=rate) if rate else config


def _explain(task: Task, state: State, step: int, loss: float, batch: Any) -> str:
    where = task.goal.not_finite(task, state.params, batch)
    found = f"the first tensor that is not finite is {where}" if where else "only dropout's random numbers made it so"
    rate = learning_rate(task, step)
    return (
        f"the loss is {loss} at step {step + 1} (epoch {state.epoch + 1}): {found}; "
        f"try a smaller learning rate than {rate:.3g}, a longer warm-up or clipping"
    )


def _finish_epoch(task: Task, state: State) -> Row:
    ended = state.epoch + 1
    due = ended % task.recipe.test_every == 0 or ended == task.recipe.epochs
    tested = task.goal.test(task, state.best_params) if due else {}
    state.seconds += state.epoch_seconds
    row: Row = {
        "epoch": ended,
        "train_loss": state.loss_sum / state.seen,
        **task.goal.rates(state.correct, state.seen),
        **tested,
        "learning_rate": learning_rate(task, ended * task.batches - 1),
        "images_per_second": state.seen / state.epoch_seconds,
        "data_share": state.waited / state.epoch_seconds,
        "seconds": state.seconds,
    }
    state.epoch, state.batch = ended, 0
    state.loss_sum, state.correct, state.seen, state.epoch_seconds, state.waited = 0.0, 0, 0, 0.0, 0.0
    return row


def _groups(task: Task, params: Params) -> tuple[list[str], list[groups.Group]]:
    recipe = task.recipe
    depth = None if recipe.layer_decay is None else task.config.depth
    frozen = frozen_names(tree.flatten(params), recipe.freeze)
    whole = muon.takes if recipe.update_matrix else groups.nothing
    return groups.parameter_groups(params, recipe.weight_decay, recipe.layer_decay, depth, frozen, whole)
