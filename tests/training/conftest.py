"""A task so small that an epoch takes milliseconds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from numpy_vit.data import Preprocessing, Split, load
from numpy_vit.models import vit
from numpy_vit.training import classification
from numpy_vit.training.loop import Task
from numpy_vit.training.recipe import Recipe


@pytest.fixture(scope="session")
def few_digits() -> Split:
    data = load("digits")
    return Split(data.train.take(range(50)), data.test.take(range(20)))


@pytest.fixture
def small_task(few_digits: Split) -> Callable[..., Task]:
    """Return a function that makes a task; its arguments replace fields of the recipe."""

    def make(workers: int = 1, **recipe: Any) -> Task:
        config = vit.Config(
            image_size=8, patch_size=2, in_chans=1, num_classes=10, embed_dim=16, depth=2, num_heads=2,
            attn_drop_rate=0.1, drop_path_rate=0.1,
        )  # fmt: skip
        base = Recipe(epochs=4, batch_size=16, padding=1, warmup_epochs=1, seed=3)
        preprocessing = Preprocessing.of(few_digits.train)
        return Task(classification, vit, config, replace(base, **recipe), few_digits, preprocessing, workers)

    return make
