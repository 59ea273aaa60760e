"""The gradient step: loss and gradients of a batch, computed in shards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeVar

import numpy as np

from numpy_vit import tree
from numpy_vit.layers import cross_entropy
from numpy_vit.tree import Array, Params

T = TypeVar("T")

# A shard's activations should stay in the second-level cache: so many numbers in a block's input at most.  A batch
# should make a few shards, so that a few cores have something to do; but below a third of that size Python's own
# time, which threads cannot share, counts more than the cores.
_MOST = 8 * 64 * 192
_LEAST = _MOST // 3
_SHARDS = 4


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
    gradients are added in the shards' order: memory is that of a shard, and the result is the same, bit for bit,
    for any number of workers.  This is gradient accumulation: the shards' sums, divided by the whole batch's
    denominator, are the big batch's gradient.

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
    size = shard or shard_size(B, config.num_patches + config.num_prefix_tokens, config.embed_dim)
    denominator = float(B if weights is None else weights.sum())

    def run(number: int) -> tuple[float, Array, Params]:
        part = slice(number * size, (number + 1) * size)
        rng = None if seed is None else np.random.default_rng([*seed, number])
        own = None if weights is None else weights[part]
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # whoever steps asks whether it is finite
            logits, cache = model.forward(params, images[part], config, rng)
            loss, c_loss = cross_entropy.forward(logits, targets[part], label_smoothing, own, "sum")
            dlogits = cross_entropy.backward(1 / denominator, c_loss)
            _, grads = model.backward(dlogits, cache)
        return float(loss), logits, grads

    buffer, total = tree.pack(tree.map(np.zeros_like, params)) if into is None else into
    buffer[...] = 0
    accumulators = tree.flatten(total)
    losses, logits = [], []
    for loss, own_logits, grads in in_order(run, -(-B // size), workers):
        for name, gradient in tree.flatten(grads).items():
            accumulators[name] += gradient
        losses.append(loss)
        logits.append(own_logits)
    return Gradients(sum(losses) / denominator, np.concatenate(logits), total)


def shard_size(batch: int, tokens: int, dim: int) -> int:
    """Return how many images a shard has: it follows from the model and the batch, never from the workers."""
    most, least = (max(1, round(numbers / (tokens * dim))) for numbers in (_MOST, _LEAST))
    return min(max(-(-batch // _SHARDS), least), most)


def in_order(task: Callable[[int], T], count: int, workers: int) -> Iterator[T]:
    """Yield task(0), task(1), … in this order, computed by so many threads.

    An exception in a task reaches the caller with its own traceback; tasks that have not begun are dropped, and
    no thread is left behind.
    """
    if workers <= 1 or count <= 1:
        yield from map(task, range(count))
        return
    pool = ThreadPoolExecutor(min(workers, count))
    try:
        yield from pool.map(task, range(count))
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
