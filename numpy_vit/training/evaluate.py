"""How good a model is on a data set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from numpy_vit.data import ImageSet, Preprocessing
from numpy_vit.layers import cross_entropy
from numpy_vit.training.shards import MOST, in_order, shard_size
from numpy_vit.tree import Array, Params, flatten


@dataclass(frozen=True)
class Evaluation:
    """Mean loss, and counts[i, j]: how many samples of class i were taken for class j; top5 is a fraction."""

    loss: float
    counts: Array
    top5: float

    @property
    def accuracy(self) -> float:
        """The fraction of samples whose highest logit is that of their class."""
        return float(np.trace(self.counts) / self.counts.sum())

    @property
    def per_class(self) -> Array:
        """(K,), the accuracy on the samples of each class; NaN for a class without samples."""
        samples = self.counts.sum(axis=1)
        empty = np.full(len(samples), np.nan)
        each: Array = np.divide(np.diag(self.counts), samples, out=empty, where=samples > 0)
        return each


def predict(
    model: ModuleType,
    params: Params,
    config: Any,
    data: ImageSet,
    preprocessing: Preprocessing,
    workers: int = 1,
    on_progress: Callable[[int], None] = lambda done: None,
) -> Array:
    """Return the logits (n, K) of a data set's images, in shards that workers share; no caches are kept.

    Each shard's images are taken when its turn comes, so a data set on disk never is in memory as a whole.
    `on_progress` is called with the number of images done so far.
    """
    preprocessing.check((len(data), *data.shape))
    dtype = next(iter(flatten(params).values())).dtype
    size = shard_size(len(data), config.num_patches + config.num_prefix_tokens, MOST)

    def run(number: int) -> Array:
        part = data.take(range(number * size, min((number + 1) * size, len(data)))).images
        with np.errstate(over="ignore", invalid="ignore"):  # weights that went bad make NaN logits, not warnings
            logits: Array = model.predict(params, preprocessing.apply(part, dtype), config)
        return logits

    parts = []
    for part in in_order(run, -(-len(data) // size), workers):
        parts.append(part)
        on_progress(min(len(parts) * size, len(data)))
    return np.concatenate(parts)


def evaluate(
    model: ModuleType,
    params: Params,
    config: Any,
    data: ImageSet,
    preprocessing: Preprocessing,
    workers: int = 1,
    on_progress: Callable[[int], None] = lambda done: None,
) -> Evaluation:
    """Return loss, accuracy, top-5 and confusion counts of a model on a data set."""
    return judge(predict(model, params, config, data, preprocessing, workers, on_progress), data.labels)


def judge(logits: Array, labels: Array) -> Evaluation:
    """Return loss, accuracy, top-5 and confusion counts of logits (n, K), given the true classes (n,)."""
    K = logits.shape[1]
    with np.errstate(over="ignore", invalid="ignore"):
        loss, _ = cross_entropy.forward(logits.astype(np.float64), labels)
    counts = np.zeros((K, K), np.int64)
    np.add.at(counts, (labels, logits.argmax(axis=1)), 1)
    own = np.take_along_axis(logits, labels[:, None], axis=1)
    top5 = (logits > own).sum(axis=1) < 5
    return Evaluation(float(loss), counts, float(top5.mean()))
