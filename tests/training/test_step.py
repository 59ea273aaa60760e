"""The gradient step: shards, workers, and the one division by the batch."""

from __future__ import annotations

import threading
import traceback
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from numpy_vit import tree
from numpy_vit.checks.examples import vit_example
from numpy_vit.layers import cross_entropy
from numpy_vit.models import vit
from numpy_vit.training.shards import in_order, shard_size
from numpy_vit.training.step import gradients

CONFIG = vit_example({"drop_rate": 0.2, "attn_drop_rate": 0.3, "drop_path_rate": 0.4})


def batch(count: int = 10, dtype: Any = np.float64) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(0)
    params = tree.map(lambda leaf: leaf + 0.3 * rng.standard_normal(leaf.shape), vit.init(CONFIG, rng, np.float64))
    images = rng.standard_normal((count, 2, 6, 12))
    return tree.map(lambda leaf: leaf.astype(dtype), params), images.astype(dtype), rng.integers(0, 3, count)


def largest_difference(a: Any, b: Any) -> float:
    flat = tree.flatten(b)
    assert tree.flatten(a).keys() == flat.keys()
    return max(float(np.abs(leaf - flat[key]).max()) for key, leaf in tree.flatten(a).items())


@pytest.mark.parametrize("shard", [1, 3, 4, 10])
@pytest.mark.parametrize("soft", [False, True])
def test_accumulated_shards_are_the_big_batch(shard: int, soft: bool) -> None:
    params, images, labels = batch()
    targets = np.random.default_rng(1).dirichlet(np.ones(3), 10) if soft else labels
    weights = np.random.default_rng(2).uniform(0.1, 2, 10)
    logits, cache = vit.forward(params, images, CONFIG)
    loss, c_loss = cross_entropy.forward(logits, targets, 0.1, weights)
    _, whole = vit.backward(cross_entropy.backward(1.0, c_loss), cache)
    found = gradients(
        vit, params, CONFIG, images, targets, label_smoothing=0.1, weights=weights, shard=shard, workers=2
    )
    assert found.loss == pytest.approx(float(loss), rel=1e-13)
    assert largest_difference(found.grads, whole) < 1e-13
    np.testing.assert_allclose(found.logits, logits, rtol=0, atol=1e-12)


def test_a_batch_twice_over_has_the_same_gradient() -> None:
    """The gradient of a mean is divided by the batch once: Adam would hide a wrong scale."""
    params, images, labels = batch()
    once = gradients(vit, params, CONFIG, images, labels, shard=4)
    twice = gradients(vit, params, CONFIG, np.tile(images, (2, 1, 1, 1)), np.tile(labels, 2), shard=4)
    assert twice.loss == pytest.approx(once.loss, rel=1e-13)
    assert largest_difference(once.grads, twice.grads) < 1e-13


def test_the_bits_do_not_depend_on_the_number_of_workers() -> None:
    params, images, labels = batch(dtype=np.float32)
    found = [
        gradients(vit, params, CONFIG, images, labels, seed=(5, 7), shard=2, workers=workers) for workers in (1, 2, 4)
    ]
    for other in found[1:]:
        assert other.loss == found[0].loss
        assert other.logits.tobytes() == found[0].logits.tobytes()
        assert largest_difference(other.grads, found[0].grads) == 0
    assert gradients(vit, params, CONFIG, images, labels, seed=(5, 8), shard=2).loss != found[0].loss
    assert gradients(vit, params, CONFIG, images, labels, shard=2).loss != found[0].loss


def test_gradients_go_into_the_buffer_that_is_given() -> None:
    params, images, labels = batch()
    buffer, views = tree.pack(params)  # holds the parameters: whatever is there is overwritten
    found = gradients(vit, params, CONFIG, images, labels, into=(buffer, views))
    assert found.grads is views
    assert largest_difference(views, gradients(vit, params, CONFIG, images, labels).grads) == 0


def test_an_exception_in_a_worker_reaches_the_caller_and_leaves_no_thread() -> None:
    def fail(params: Any, images: Any, config: Any, rng: Any) -> Any:
        raise RuntimeError("in the second shard") if images[0, 0, 0, 0] > 0 else ValueError("in the first shard")

    params, images, labels = batch()
    images[:, 0, 0, 0] = np.arange(10) - 2.5
    before = threading.active_count()
    with pytest.raises(ValueError, match="first shard") as caught:
        gradients(SimpleNamespace(forward=fail), params, CONFIG, images, labels, shard=3, workers=2)  # type: ignore[arg-type]
    assert "in fail" in "".join(traceback.format_exception(caught.value))
    assert threading.active_count() == before


def test_results_come_in_order_whoever_is_faster() -> None:
    gate = threading.Event()

    def task(number: int) -> int:
        if number == 0:
            assert gate.wait(5)
        else:
            gate.set()
        return number

    assert list(in_order(task, 6, 3)) == [0, 1, 2, 3, 4, 5]


def test_shard_size_follows_from_the_model_and_the_batch() -> None:
    assert shard_size(64, 65) == 11  # six shards of at most 715 tokens: no worker of two has more than the other
    assert -(-8 // shard_size(8, 197)) == 4  # ViT-Ti/16 at 224 and batch 8
    assert shard_size(1, 4097) == 1
    assert shard_size(64, 16) == 32
    assert shard_size(64, 8) == 64  # too little for two


@pytest.mark.parametrize(("images", "targets"), [(0, 0), (3, 2)])
def test_batches_that_do_not_fit_are_refused(images: int, targets: int) -> None:
    params, some, labels = batch()
    with pytest.raises(ValueError, match=f"{images} images have {targets} targets"):
        gradients(vit, params, CONFIG, some[:images], labels[:targets])
