"""What is timed: six rows, their seeded inputs, and our way of running them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from numpy_vit import tree
from numpy_vit.files import replacing
from numpy_vit.models import vit, vit_config
from numpy_vit.training import adamw, groups, step
from numpy_vit.tree import Array
from numpy_vit.views import costs

LEARNING_RATE, WEIGHT_DECAY = 1e-3, 0.01  # of every parameter, with the defaults of torch.optim.AdamW for the rest


@dataclass(frozen=True)
class Workload:
    """A model, a batch, and what is done with it.

    Parameters
    ----------
    training : a whole step with AdamW; else the logits
    sharded : it is cut into shards that threads share, each with one BLAS thread; else BLAS has all the threads
    """

    name: str
    config: vit.Config
    batch: int
    training: bool
    sharded: bool = True

    @property
    def tokens(self) -> int:
        """Tokens an image, the class token with them."""
        return self.config.num_prefix_tokens + self.config.num_patches

    def threads(self, workers: int) -> tuple[int, int]:
        """Return how many of our threads and how many BLAS threads, in each of them, make use of so many cores."""
        return (workers, 1) if self.sharded else (1, workers)

    @property
    def flop(self) -> int:
        """Floating-point operations of one run: two a multiply-add, and a step costs three forwards."""
        return (3 if self.training else 1) * 2 * self.batch * sum(costs.multiply_adds(self.config).values())


def _row(name: str, variant: str, batch: int, training: bool, sharded: bool = True) -> Workload:
    return Workload(name, vit_config(variant), batch, training, sharded)


WORKLOADS: dict[str, Workload] = {
    row.name: row
    for row in (
        _row("tiny-step", "vit_micro_patch4_32", 64, training=True),
        _row("patch16-step", "vit_micro_patch16_64", 64, training=True),
        _row("ti16-step", "vit_tiny_patch16_224", 8, training=True),
        _row("b16-infer-8", "vit_base_patch16_224", 8, training=False),
        _row("b16-infer-1", "vit_base_patch16_224", 1, training=False, sharded=False),
        _row("ti16-infer-32", "vit_tiny_patch16_224", 32, training=False),
    )
}


class Inputs(NamedTuple):
    """What every contender starts from: parameters under timm's names, images (B, C, Y, X) and labels (B,)."""

    params: dict[str, Array]
    images: Array
    labels: Array


def draw(workload: Workload, seed: int = 0) -> Inputs:
    """Return seeded inputs in float32; every parameter has noise, since a bias of zeros could be missing unseen."""
    rng, config = np.random.default_rng(seed), workload.config
    params = tree.flatten(vit.init(config, rng))
    for leaf in params.values():
        leaf += 0.02 * rng.standard_normal(leaf.shape, np.float32)
    images = rng.standard_normal((workload.batch, config.in_chans, *config.image), np.float32)
    return Inputs(params, images, rng.integers(0, config.num_classes, workload.batch))


def write(path: str | os.PathLike[str], inputs: Inputs) -> None:
    """Write inputs to an .npz file that `read` reads, whole or not at all."""
    params: dict[str, Any] = {f"params/{name}": leaf for name, leaf in inputs.params.items()}
    with replacing(path) as file:
        np.savez(file, images=inputs.images, labels=inputs.labels, **params)


def read(path: str | os.PathLike[str]) -> Inputs:
    """Return the inputs that `write` wrote."""
    with np.load(path, allow_pickle=False) as stored:
        params = {name.removeprefix("params/"): stored[name] for name in stored.files if name.startswith("params/")}
        return Inputs(params, stored["images"], stored["labels"])


class Job:
    """A workload with its parameters and, in training, the optimizer's state, which `run` carries on."""

    def __init__(self, workload: Workload, inputs: Inputs, workers: int = 1) -> None:
        self._workload, self._workers = workload, workers
        self._images, self._labels = inputs.images, inputs.labels
        self._params = tree.unflatten(inputs.params)
        if workload.training:
            self._flat, self._params = tree.pack(self._params)
            self._grads = tree.pack(self._params)  # filled anew by every step
            self._state = adamw.init(self._flat)
            self._groups = [groups.Group("all", 0, self._flat.size, WEIGHT_DECAY, 1.0)]

    def run(self, workers: int | None = None) -> float | None:
        """Do the work once; return a step's loss, which is that before its update."""
        workers = workers or self._workers
        if not self._workload.training:
            self._logits(workers)
            return None
        found = self._gradients(workers)
        groups.apply(adamw.update, self._flat, self._grads[0], self._state, self._groups, LEARNING_RATE, workers)
        return found.loss

    def outputs(self) -> dict[str, Any]:
        """Return what contenders have to agree on: the logits and, in training, numbers that depend on everything.

        These are the loss, the norm of all gradients together, and the loss after one step, which shows that the
        optimizers do the same work too.  Two steps are made on the way.
        """
        if not self._workload.training:
            return {"logits": self._logits(self._workers)}
        found = self._gradients(self._workers)
        norm = float(np.linalg.norm(self._grads[0]))
        self.run()
        return {"logits": found.logits, "loss": found.loss, "gradient_norm": norm, "loss_after_step": self.run()}

    def _gradients(self, workers: int) -> step.Gradients:
        return step.gradients(
            vit, self._params, self._workload.config, self._images, self._labels, workers=workers, into=self._grads
        )

    def _logits(self, workers: int) -> Array:
        return step.logits(vit, self._params, self._workload.config, self._images, workers=workers)
