"""Learning to reconstruct: the batches, the gradients and the test of a masked autoencoder's run."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from numpy_vit.layers.recording import Take
from numpy_vit.models import mae, vit
from numpy_vit.training import classification
from numpy_vit.training.shards import in_order, shard_size
from numpy_vit.training.step import accumulate
from numpy_vit.training.task import Task
from numpy_vit.tree import Array, Params, flatten

_TESTED = 2000  # test images at most: the loss is an average over patches, so that these say it to within a percent
_NOISE = 1  # what the random numbers of the masks are for, beside the step's own


@dataclass(frozen=True)
class Batch:
    """Images (B, C, Y, X) as the model takes them, and the noise (B, N) that chooses their visible patches."""

    images: Array
    noise: Array

    def __len__(self) -> int:
        return len(self.images)


@dataclass(frozen=True)
class Found:
    """A step's mean loss; nothing is classified."""

    loss: float
    correct: int = 0


def prepare(task: Task, indices: Array, repeats: Array | int, epoch: int, number: int, dtype: Any) -> Batch:
    """Return batch `number` of an epoch: augmented and normalised images, and new noise for each."""
    recipe = task.recipe
    part = task.data.train.take(indices)
    images = classification.augmentation(recipe, task.preprocessing.mean).apply(
        part.images, recipe.seed, epoch, indices, repeats
    )
    rng = np.random.default_rng([recipe.seed, epoch, number, _NOISE])
    return Batch(task.preprocessing.apply(images, dtype), _noise(task.config, len(images), rng))


def gradients(
    task: Task, form: tuple[ModuleType, Any], params: Params, batch: Batch, seed: tuple[int, ...],
    into: tuple[Array, Params],
) -> Found:  # fmt: skip
    """Write a batch's gradients into `into`, shard by shard as in step.objective_gradients."""
    config = form[1]
    size, masked = _shard(config, len(batch)), float(len(batch) * config.num_masked)

    def run(number: int, take: Take) -> float:
        part = slice(number * size, (number + 1) * size)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # whoever steps asks what is finite
            rng = np.random.default_rng([*seed, number])
            loss, cache = mae.forward(params, batch.images[part], config, batch.noise[part], rng, masked)
            mae.backward(1.0, cache, take)
        return float(loss)

    losses, _ = accumulate(params, run, -(-len(batch) // size), task.workers, into)
    return Found(sum(losses))


def rates(correct: int, seen: int) -> dict[str, float]:
    """Return what a row of metrics says of the training part besides its loss: nothing."""
    return {}


def test(task: Task, params: Params) -> dict[str, float]:
    """Return the loss on test images, always the same ones with the same masks."""
    data, config = task.data.test, task.config
    count = min(_TESTED, len(data))
    noise = _noise(config, count, np.random.default_rng([task.recipe.seed, _NOISE]))
    chosen = np.linspace(0, len(data) - 1, count).astype(np.int64)  # spread over all classes
    size, dtype = _shard(config, count), next(iter(flatten(params).values())).dtype

    def run(number: int) -> float:
        part = slice(number * size, (number + 1) * size)
        images = task.preprocessing.apply(data.take(chosen[part]).images, dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            loss, _ = mae.forward(params, images, config, noise[part], None, float(count * config.num_masked))
        return float(loss)

    return {"test_loss": sum(in_order(run, -(-count // size), task.workers))}


def not_finite(task: Task, params: Params, batch: Batch) -> str:
    """Return which parameter is not finite, where a loss or gradient is not; "" where all are."""
    bad = [name for name, array in flatten(params).items() if not np.isfinite(array).all()]
    return f"parameter {bad[0]}" if bad else ""


def export(task: Task, params: Params) -> tuple[ModuleType, Any, Params]:
    """Return what is saved as the run's model: the encoder, an ordinary ViT without a head."""
    encoder, config = mae.encoder_params(params, task.config)
    return vit, config, encoder


def _noise(config: mae.Config, count: int, rng: np.random.Generator) -> Array:
    return rng.random((count, config.encoder.num_patches), np.float32)


def _shard(config: mae.Config, batch: int) -> int:
    """Images a shard, by the encoder's and the decoder's tokens in proportion to their width."""
    encoder = config.num_visible + 1
    decoder = (config.encoder.num_patches + 1) * config.decoder_embed_dim // config.encoder.embed_dim
    return shard_size(batch, max(encoder, decoder))
