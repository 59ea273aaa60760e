"""Learning to classify: the batches, the gradients and the test of a run that has labels."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any

from numpy_vit.data import augment, mixing, randomness
from numpy_vit.data.random_erasing import RandomErasing
from numpy_vit.training.distillation import Distillation
from numpy_vit.training.evaluate import evaluate
from numpy_vit.training.finite import first_bad
from numpy_vit.training.objectives import CrossEntropy, Objective
from numpy_vit.training.recipe import Recipe
from numpy_vit.training.step import objective_gradients
from numpy_vit.training.task import Task
from numpy_vit.tree import Array, Params


@dataclass(frozen=True)
class Batch:
    """Images (B, C, Y, X) as the model takes them, targets as the loss takes them, and the true labels (B,)."""

    images: Array
    targets: Array
    labels: Array
    indices: Array

    def __len__(self) -> int:
        return len(self.images)


@dataclass(frozen=True)
class Found:
    """What a step found: the batch's mean loss, and how many images were classified as they should be."""

    loss: float
    correct: int


def prepare(task: Task, indices: Array, repeats: Array | int, epoch: int, number: int, dtype: Any) -> Batch:
    """Return batch `number` of an epoch: augmented, normalised, erased and mixed, in this order.

    Parameters
    ----------
    indices, repeats : which samples, and which time in this epoch each one comes
    """
    recipe = task.recipe
    part = task.data.train.take(indices)
    images = augmentation(recipe, task.preprocessing.mean).apply(part.images, recipe.seed, epoch, indices, repeats)
    x = task.preprocessing.apply(images, dtype)
    if recipe.erase:
        x = RandomErasing(recipe.erase, recipe.erase_mode).apply(x, recipe.seed, epoch, indices, repeats)
    targets = part.labels
    if recipe.mixup or recipe.cutmix:
        mixer = mixing.Mixing(recipe.mixup, recipe.cutmix)
        mix = mixer.draw(randomness.batch_rng(recipe.seed, epoch, number), x.shape)
        targets = mixing.soft_targets(part.labels, len(part.class_names), recipe.label_smoothing, dtype)
        x, targets = mixer.apply(x, targets, mix)
    return Batch(x, targets, part.labels, indices)


def augmentation(recipe: Recipe, mean: tuple[float, ...]) -> augment.Augmentation:
    """Return what a recipe does to the training images before they are normalised; `mean` fills what is left free."""
    return augment.Augmentation(
        padding=recipe.padding,
        flip=recipe.flip,
        mode=recipe.pad_mode,
        affine=recipe.affine,
        crop_scale=None if recipe.crop_scale is None else (recipe.crop_scale, 1.0),
        auto_augment=recipe.auto_augment,
        color_jitter=recipe.color_jitter or None,
        mean=tuple(round(255 * value) for value in mean),
    )


def gradients(
    task: Task, form: tuple[ModuleType, Any], params: Params, batch: Batch, seed: tuple[int, ...],
    into: tuple[Array, Params],
) -> Found:  # fmt: skip
    """Write a batch's gradients into `into`.

    Parameters
    ----------
    form : the model's module and configuration for this step
    """
    model, config = form
    found = objective_gradients(
        model, params, config, batch.images, _objective(task, batch), seed=seed, workers=task.workers, into=into
    )
    return Found(found.loss, int((found.logits.argmax(axis=1) == batch.labels).sum()))


def _objective(task: Task, batch: Batch) -> Objective:
    recipe = task.recipe
    smoothing = 0.0 if batch.targets.ndim == 2 else recipe.label_smoothing  # soft targets are smooth already
    labels = CrossEntropy(batch.targets, smoothing)
    if task.teacher is None:
        return labels
    return Distillation(
        labels, task.teacher(batch.images, batch.indices), recipe.distill, recipe.distill_alpha,
        recipe.distill_temperature,
    )  # fmt: skip


def rates(correct: int, seen: int) -> dict[str, float]:
    """Return what a row of metrics says of the training part besides its loss."""
    return {"train_accuracy": correct / seen}


def test(task: Task, params: Params) -> dict[str, float]:
    """Return what a row of metrics says of the test part."""
    found = evaluate(task.model, params, task.config, task.data.test, task.preprocessing, task.workers)
    return {"test_loss": found.loss, "test_accuracy": found.accuracy}


def not_finite(task: Task, params: Params, batch: Batch) -> str:
    """Return which tensor went bad first, where a loss or gradient is not finite."""
    return first_bad(task.model, params, task.config, batch.images, _objective(task, batch))


def export(task: Task, params: Params) -> tuple[ModuleType, Any, Params]:
    """Return what is saved as the run's model."""
    return task.model, task.config, params
