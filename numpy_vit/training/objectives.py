"""What is made of a model's outputs: a loss for each shard of a batch, and its gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from numpy_vit.layers import cross_entropy
from numpy_vit.tree import Array, Cache


class Objective(Protocol):
    """A batch's targets, and the loss that they make of the outputs of a part of it."""

    @property
    def denominator(self) -> float:
        """What the sum over all parts is divided by, so that it is the batch's mean."""

    def forward(self, output: Any, part: slice) -> tuple[Array, Cache]:
        """Return the sum of the losses of the images `part`, of which the model made `output`."""

    def backward(self, dloss: float, cache: Cache) -> Any:
        """Return the gradient of that sum, times dloss, in the form of the model's output."""

    def logits(self, output: Any) -> Array:
        """Return the (b, K) logits that say what an image was taken for."""


@dataclass(frozen=True)
class CrossEntropy:
    """Learning from labels.

    Parameters
    ----------
    targets : class indices (B,) or soft targets (B, K)
    label_smoothing, weights : as in cross_entropy; a weighted mean divides by the sum of the batch's weights
    """

    targets: Array
    label_smoothing: float = 0.0
    weights: Array | None = None

    @property
    def denominator(self) -> float:
        """The number of images, or the sum of their weights."""
        return float(len(self.targets) if self.weights is None else self.weights.sum())

    def forward(self, output: Array, part: slice) -> tuple[Array, Cache]:
        """Return the sum of the part's cross-entropies; output : (b, K)."""
        weights = None if self.weights is None else self.weights[part]
        return cross_entropy.forward(output, self.targets[part], self.label_smoothing, weights, "sum")

    def backward(self, dloss: float, cache: Cache) -> Array:
        """Return dlogits (b, K)."""
        return cross_entropy.backward(dloss, cache)

    def logits(self, output: Array) -> Array:
        """Return the output itself."""
        return output
