"""The gradient step, loss and gradients of a batch, and the logits of one, computed in shards."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

from numpy_vit import tree
from numpy_vit.layers import cross_entropy
from numpy_vit.training.shards import MOST, Turns, in_order, shard_size
from numpy_vit.tree import Array, Params


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

    The batch is cut into shards of a few images.  Each runs forward and backward by itself, and the shards'
    gradients are added in the shards' order: memory is that of a shard for each worker, and the result is the same,
    bit for bit, for any number of workers.  This is gradient accumulation: the shards' sums, divided by the whole
    batch's denominator, are the big batch's gradient.

    Parameters
    ----------
    model, params, config : a model's module, its parameters and configuration
    images, targets : (B, C, Y, X) in the parameters' dtype; class indices (B,) or soft targets (B, K)
    label_smoothing, weights : as in cross_entropy; a weighted mean divides by the sum of the batch's weights
    seed : of dropout and drop path, such as (seed, step); each shard adds its number.  None turns them off
    shard : images a shard; None lets `shard_size` choose
    workers : threads; each should have one BLAS thread
    into : a buffer and a tree of views of it, as from tree.pack, that receive the gradients; None makes new ones

    Raises
    ------
    ValueError : an empty batch, or one whose images and targets differ in number.
    """
    B = len(images)
    if B == 0 or len(targets) != B:
        raise ValueError(f"{B} images have {len(targets)} targets: a batch needs one an image, and one image at least")
    size = shard or shard_size(B, config.num_patches + config.num_prefix_tokens)
    denominator = float(B if weights is None else weights.sum())
    buffer, total = tree.pack(tree.map(np.zeros_like, params)) if into is None else into
    buffer[...] = 0
    accumulators, turns = tree.flatten(total), Turns()

    def run(number: int) -> tuple[float, Array]:
        part = slice(number * size, (number + 1) * size)
        rng = None if seed is None else np.random.default_rng([*seed, number])
        own = None if weights is None else weights[part]
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # whoever steps asks what is finite
            logits, cache = model.forward(params, images[part], config, rng)
            loss, c_loss = cross_entropy.forward(logits, targets[part], label_smoothing, own, "sum")
            dlogits = cross_entropy.backward(1 / denominator, c_loss)
            model.backward(dlogits, cache, take=partial(add_in_turn, number))
        return float(loss), logits

    def add_in_turn(number: int, place: str, grads: Params) -> None:
        turns.take(number, place, lambda: add(place, grads))

    def add(place: str, grads: Params) -> None:
        for name, gradient in tree.flatten(grads).items():
            accumulators[f"{place}.{name}" if place else name] += gradient

    losses, logits = zip(*in_order(run, -(-B // size), workers), strict=True)
    return Gradients(sum(losses) / denominator, np.concatenate(logits), total)


def logits(
    model: ModuleType, params: Params, config: Any, images: Array, *, shard: int | None = None, workers: int = 1
) -> Array:
    """Return the logits (B, K) of a batch of images (B, C, Y, X), in shards that workers share; no caches are kept.

    One image, or BLAS with several threads, is served best by model.predict itself.
    """
    size = shard or shard_size(len(images), config.num_patches + config.num_prefix_tokens, MOST)

    def run(number: int) -> Array:
        found: Array = model.predict(params, images[number * size : (number + 1) * size], config)
        return found

    return np.concatenate(list(in_order(run, -(-len(images) // size), workers)))
