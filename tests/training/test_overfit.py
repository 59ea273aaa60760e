"""Learning a few images by heart, and a model that cannot."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from numpy_vit import tree
from numpy_vit.models import vit
from numpy_vit.training import overfit as module
from numpy_vit.training.loop import Task
from numpy_vit.training.overfit import overfit

MakeTask = Callable[..., Task]


def test_a_right_model_learns_by_heart(small_task: MakeTask) -> None:
    outcome = overfit(small_task(lr=3e-3), 12)
    assert outcome.learned
    assert outcome.accuracy == 1
    assert outcome.loss < 0.01
    assert 20 < outcome.steps < 400


def test_a_model_with_a_broken_backward_does_not(small_task: MakeTask, monkeypatch: pytest.MonkeyPatch) -> None:
    def backward(dlogits: Any, cache: Any, take: Any) -> Any:
        return vit.backward(dlogits, cache, take=lambda place, grads: take(place, tree.map(np.negative, grads)))

    monkeypatch.setattr(module, "STEPS", 60)
    task = small_task(lr=3e-3)
    broken: Any = SimpleNamespace(init=vit.init, forward=vit.forward, backward=backward)
    outcome = overfit(Task(task.goal, broken, task.config, task.recipe, task.data, task.preprocessing), 12)
    assert not outcome.learned
    assert outcome.steps == 60


@pytest.mark.parametrize("count", [0, 51])
def test_more_images_than_there_are_are_refused(small_task: MakeTask, count: int) -> None:
    with pytest.raises(ValueError, match=f"1 to 50 images of this data set, not {count}"):
        overfit(small_task(), count)
