"""The layers' times: each call counts once, for its own layer, and nothing stays wrapped."""

from __future__ import annotations

import time
from types import ModuleType
from typing import Any

import pytest

from numpy_vit.bench import workloads
from numpy_vit.bench.layers import BESIDE, HALVES, loaded_layers, mean_times, parts_of, watched
from numpy_vit.bench.workloads import Job, Workload
from numpy_vit.models import vit
from numpy_vit.training.shards import Turns

CONFIG = vit.Config(image_size=12, patch_size=4, num_classes=5, embed_dim=12, depth=2, num_heads=3)


def functions() -> dict[str, Any]:
    return {
        f"{m.__name__}.{name}": value for m in loaded_layers() for name, value in vars(m).items() if callable(value)
    }


@pytest.mark.parametrize("training", [True, False])
def test_a_run_is_the_sum_of_its_layers_and_the_rest(training: bool) -> None:
    workload = Workload("small", CONFIG, batch=4, training=training)
    job = Job(workload, workloads.draw(workload))
    times, whole = mean_times(job.run, parts_of(loaded_layers()) + BESIDE, repeats=2)
    assert {"linear", "layernorm", "gelu", "dot_product_attention", "patch_embed"} <= times.forward.keys()
    assert all(seconds >= 0 for part in (times.forward, times.backward, times.beside) for seconds in part.values())
    assert 0 < times.total <= whole
    assert ({"linear", "layernorm", "gelu", "cross_entropy"} <= times.backward.keys()) == training
    assert training or not times.backward
    assert times.beside.keys() == ({"optimizer", "sum of gradients"} if training else set())


def test_gradients_and_the_optimizer_are_a_step_with_any_number_of_workers() -> None:
    workload = Workload("small", CONFIG, batch=64, training=True)
    job = Job(workload, workloads.draw(workload), workers=2)
    times, whole = mean_times(job.run, HALVES)
    assert times.beside.keys() == {"gradients", "optimizer"}
    assert 0.5 * whole < times.total <= whole
    assert times.beside["optimizer"] < times.beside["gradients"]


def test_the_functions_are_back_after_an_exception() -> None:
    before, take = functions(), Turns.take
    with pytest.raises(ZeroDivisionError), watched(parts_of(loaded_layers()) + BESIDE):
        during = functions()
        assert during["numpy_vit.layers.linear.forward"] is not before["numpy_vit.layers.linear.forward"]
        assert during["numpy_vit.layers.linear.init"] is before["numpy_vit.layers.linear.init"]
        assert Turns.take is not take
        raise ZeroDivisionError
    assert functions() == before
    assert Turns.take is take


def test_times_are_exclusive_and_what_backward_calls_is_backward() -> None:
    inner, outer = ModuleType("made.inner"), ModuleType("made.outer")

    def forward(seconds: float) -> None:
        time.sleep(seconds)

    forward.__module__ = inner.__name__
    inner.forward = forward  # type: ignore[attr-defined]

    def backward() -> None:
        inner.forward(0.05)
        raise KeyError

    backward.__module__ = outer.__name__
    outer.backward = backward  # type: ignore[attr-defined]
    with watched(parts_of([inner, outer])) as times:
        inner.forward(0.02)
        with pytest.raises(KeyError):
            outer.backward()
        inner.forward(0.02)
    assert times.forward.keys() == {"inner"}
    assert times.forward["inner"] >= 0.04
    assert times.backward["inner"] >= 0.05
    assert times.backward["outer"] < times.backward["inner"]
