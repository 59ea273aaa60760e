"""What a run trains: the model, the data, the recipe, and what is learned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from numpy_vit.data import Preprocessing, Split, batch_count
from numpy_vit.training.recipe import Recipe
from numpy_vit.tree import Array


@dataclass(frozen=True)
class Task:
    """What is trained, on what, and how.

    Parameters
    ----------
    goal : what is learned: the module `classification`, `reconstruction`, or another with their functions
    model, config : a model's module and its configuration
    teacher : maps a batch of normalised images to its logits (B, K), for distillation
    """

    goal: ModuleType
    model: ModuleType
    config: Any
    recipe: Recipe
    data: Split
    preprocessing: Preprocessing
    workers: int = 1
    teacher: Callable[[Array, Array], Array] | None = None

    def __post_init__(self) -> None:
        self.recipe.check(self.data.train.shape)

    @property
    def batches(self) -> int:
        """Steps an epoch."""
        return batch_count(len(self.data.train), self.recipe.batch_size)
