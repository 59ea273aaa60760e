"""The estimates of a step's and of inference's memory against what is really allocated."""

from __future__ import annotations

import threading
import tracemalloc
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from numpy_vit import tree
from numpy_vit.layers import dot_product_attention, elementwise
from numpy_vit.models import vit
from numpy_vit.training import adamw, groups
from numpy_vit.training.shards import shard_size
from numpy_vit.training.step import gradients
from numpy_vit.views import memory

FIELDS: dict[str, Any] = {
    "image_size": 64, "patch_size": 8, "num_classes": 10, "embed_dim": 96, "depth": 2, "num_heads": 3,
}  # fmt: skip
CHANGES: dict[str, dict[str, Any]] = {
    "plain": {},
    "swiglu": {"swiglu": True},
    "long": {"patch_size": 2, "image_size": 48, "embed_dim": 48},
    "dropout": {"proj_drop_rate": 0.1, "attn_drop_rate": 0.1},
    "map": {"global_pool": "map", "class_token": False},
    "deep": {"depth": 6},
    "many parameters": {"embed_dim": 192, "num_classes": 1000},
    "one shard": {"image_size": 32, "embed_dim": 192},
}
BATCH = 16


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("name", CHANGES)
def test_a_step_s_memory_is_near_the_measured_peak(name: str, workers: int) -> None:
    config = vit.Config(**{**FIELDS, **CHANGES[name]})
    labels = np.zeros(BATCH, np.int64)
    shard = _shard(config)
    meeting = threading.Barrier(min(workers, -(-BATCH // shard)))
    model = ModuleType("vit, whose threads begin their backwards together, when all of them have their caches")

    def backward(*args: Any, **kwargs: Any) -> Any:
        meeting.wait(60)
        return vit.backward(*args, **kwargs)

    vars(model).update(forward=vit.forward, backward=backward)

    def step() -> int:
        flat, params = tree.pack(vit.init(config, np.random.default_rng(0)))
        into = tree.pack(tree.map(np.zeros_like, params))
        state = adamw.init(flat)
        images = np.ones((2, BATCH, config.in_chans, *config.image), np.float32)  # this batch and the next
        tracemalloc.reset_peak()
        gradients(model, params, config, images[0], labels, seed=(0,), workers=workers, into=into)
        every = [groups.Group("all", 0, flat.size, 0.01, 1.0)]
        groups.apply(adamw.update, flat, into[0], state, every, 0.1, workers)
        return tracemalloc.get_traced_memory()[1]

    tracemalloc.start()
    try:
        peak = step()
    finally:
        tracemalloc.stop()
    parts = memory.step(config, BATCH, shard, workers)
    # Threads need not be in the same part of their backwards at one moment.
    assert sum(parts.values()) == pytest.approx(peak, rel=0.1 if workers == 1 else 0.25)


def test_the_layers_sizes_are_those_of_the_layers() -> None:
    assert memory._AT_ONCE == dot_product_attention.AT_ONCE
    assert memory._PIECE == elementwise._PIECE


def test_memory_grows_with_threads_and_not_with_the_batch() -> None:
    config = vit.Config(**FIELDS)
    one, two, eight = (memory.step(config, 64, 16, workers) for workers in (1, 2, 8))
    assert two["activations"] == 2 * one["activations"]
    assert eight == memory.step(config, 64, 16, 4)  # there are four shards
    assert memory.step(config, 640, 16, 2)["activations"] == two["activations"]
    assert sum(memory.step(config, 64, 16, 1, averages=1).values()) < sum(one.values())


def test_prediction_is_that_of_its_shards() -> None:
    config = vit.Config(**FIELDS)
    parts = memory.prediction(config, 64, 16, 2)
    assert parts["activations"] == 2 * 16 * memory.inference(config, images=16)
    assert memory.prediction(config, 8, 16, 2)["activations"] == 8 * memory.inference(config, images=8)


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 bytes"), (999, "999 bytes"), (1234, "1.23 kB"), (5_678_900, "5.68 MB"), (3e9, "3 GB")]
)
def test_readable(count: int, text: str) -> None:
    assert memory.readable(count) == text


def _shard(config: vit.Config) -> int:
    return shard_size(BATCH, config.num_patches + config.num_prefix_tokens)
