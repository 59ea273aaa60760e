"""The gradient step, loss and gradients of a batch, and the logits of one, computed in shards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any, TypeVar

import numpy as np

from numpy_vit import tree
from numpy_vit.layers.recording import Take
from numpy_vit.training.objectives import CrossEntropy, Objective
from numpy_vit.training.shards import MOST, Turns, in_order, shard_size
from numpy_vit.tree import Array, Params

Result = TypeVar("Result")


@dataclass(frozen=True)
class Gradients:
    """What a batch says: the mean loss, the logits (B, K), and the loss's gradients under the parameters' names."""

    loss: float
    logits: Array
    grads: Params


def gradients(
    model: ModuleType,
    params: Params,
    config: Any,
    images: Array,
    targets: Array,
    *,
    label_smoothing: float = 0.0,
    weights: Array | None = None,
    seed: tuple[int, ...] | None = None,
    shard: int | None = None,
    workers: int = 1,
    into: tuple[Array, Params] | None = None,
) -> Gradients:
    """Return the mean cross-entropy of a batch and its gradients.

    Parameters
    ----------
    model, params, config : a model's module, its parameters and configuration
    images, targets : (B, C, Y, X) in the parameters' dtype; class indices (B,) or soft targets (B, K)
    label_smoothing, weights : as in cross_entropy; a weighted mean divides by the sum of the batch's weights
    seed, shard, workers, into : as in `objective_gradients`

    Raises
    ------
    ValueError : an empty batch, or one whose images and targets differ in number.
    """
    B = len(images)
    if B == 0 or len(targets) != B:
        raise ValueError(f"{B} images have {len(targets)} targets: a batch needs one an image, and one image at least")
    objective = CrossEntropy(targets, label_smoothing, weights)
    return objective_gradients(
        model, params, config, images, objective, seed=seed, shard=shard, workers=workers, into=into
    )


def objective_gradients(
    model: ModuleType,
    params: Params,
    config: Any,
    images: Array,
    objective: Objective,
    *,
    seed: tuple[int, ...] | None = None,
    shard: int | None = None,
    workers: int = 1,
    into: tuple[Array, Params] | None = None,
) -> Gradients:
    """Return what a batch's outputs are worth to an objective, and the gradients.

    The batch is cut into shards of a few images.  Each runs forward and backward by itself, and the shards'
    gradients are added in the shards' order: memory is that of a shard for each worker, and the result is the same,
    bit for bit, for any number of workers.  This is gradient accumulation: the shards' sums, divided by the whole
    batch's denominator, are the big batch's gradient.

    Parameters
    ----------
    model, params, config : a model's module, its parameters and configuration
    images : (B, C, Y, X) in the parameters' dtype
    objective : what is made of the outputs, with targets for all B images
    seed : of dropout and drop path, such as (seed, step); each shard adds its number.  None turns them off
    shard : images a shard; None lets `shard_size` choose
    workers : threads; each should have one BLAS thread
    into : as in `accumulate`
    """
    B = len(images)
    size = shard or shard_size(B, config.num_kept_tokens if seed else config.num_tokens)

    def run(number: int, take: Take) -> tuple[float, Array]:
        part = slice(number * size, (number + 1) * size)
        rng = None if seed is None else np.random.default_rng([*seed, number])
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # whoever steps asks what is finite
            output, cache = model.forward(params, images[part], config, rng)
            loss, c_loss = objective.forward(output, part)
            model.backward(objective.backward(1 / objective.denominator, c_loss), cache, take=take)
        return float(loss), objective.logits(output)

    results, grads = accumulate(params, run, -(-B // size), workers, into)
    losses, logits = zip(*results, strict=True)
    return Gradients(sum(losses) / objective.denominator, np.concatenate(logits), grads)


def accumulate(
    params: Params,
    run: Callable[[int, Take], Result],
    count: int,
    workers: int = 1,
    into: tuple[Array, Params] | None = None,
) -> tuple[list[Result], Params]:
    """Return run(0, take), run(1, take), … and the sum of the gradients that they hand to `take`.

    Parameters
    ----------
    params : for which gradients are made; what else is handed over, such as those of frozen parameters, is dropped
    run : computes a shard, by its number, and hands its gradients over part by part, as the models' backward does
    count, workers : shards, and threads that share them
    into : a buffer and a tree of views of it, as from tree.pack, that receive the gradients; None makes new ones
    """
    buffer, total = tree.pack(tree.map(np.zeros_like, params)) if into is None else into
    buffer[...] = 0
    accumulators, turns = tree.flatten(total), Turns()

    def add(place: str, grads: Params) -> None:
        for name, gradient in tree.flatten(grads).items():
            full = f"{place}.{name}" if place else name
            if full in accumulators:
                accumulators[full] += gradient

    def add_in_turn(number: int, place: str, grads: Params) -> None:
        turns.take(number, place, lambda: add(place, grads))

    return list(in_order(lambda number: run(number, partial(add_in_turn, number)), count, workers)), total


def logits(
    model: ModuleType, params: Params, config: Any, images: Array, *, shard: int | None = None, workers: int = 1
) -> Array:
    """Return the logits (B, K) of a batch of images (B, C, Y, X), in shards that workers share; no caches are kept.

    One image, or BLAS with several threads, is served best by model.predict itself.
    """
    size = shard or shard_size(len(images), config.num_tokens, MOST)

    def run(number: int) -> Array:
        found: Array = model.predict(params, images[number * size : (number + 1) * size], config)
        return found

    return np.concatenate(list(in_order(run, -(-len(images) // size), workers)))
