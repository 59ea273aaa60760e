"""The gradient step: shards, workers, and the one division by the batch."""

from __future__ import annotations

import _thread
import signal
import threading
import traceback
from collections.abc import Iterator
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from numpy_vit import tree
from numpy_vit.checks.examples import VIT_CHOICES, vit_example
from numpy_vit.checks.model_examples import DEIT_CHOICES, deit_example
from numpy_vit.layers import cross_entropy
from numpy_vit.models import deit, vit
from numpy_vit.training import step
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


@pytest.mark.parametrize("after", [0, 1])
def test_an_exception_in_backward_reaches_the_caller_once_and_leaves_no_thread(after: int) -> None:
    """Shard 1 fails before it has handed anything over, or after its last block."""
    failures = []

    def forward(params: Any, images: Any, config: Any, rng: Any) -> Any:
        logits, cache = vit.forward(params, images, config, rng)
        return logits, (int(images[0, 0, 0, 0]), cache)

    def fail(dlogits: Any, cache: Any, take: Any) -> None:
        number, own = cache
        _, grads = vit.backward(dlogits, own)
        for i in reversed(range(len(grads["blocks"]))):
            if number == 1 and len(grads["blocks"]) - 1 - i == after:
                failures.append(number)
                raise RuntimeError("in the second shard's backward")
            take(f"blocks.{i}", grads["blocks"][i])
        take("", {key: part for key, part in grads.items() if key != "blocks"})

    params, images, labels = batch(12)
    images[:, 0, 0, 0] = np.arange(12) // 2
    before = threading.active_count()
    with pytest.raises(RuntimeError, match="second shard's backward") as caught:
        gradients(SimpleNamespace(forward=forward, backward=fail), params, CONFIG, images, labels, shard=2, workers=3)  # type: ignore[arg-type]
    assert failures == [1]
    assert caught.value.__context__ is None and caught.value.__cause__ is None
    assert "in fail" in "".join(traceback.format_exception(caught.value))
    assert threading.active_count() == before


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt, also where the tests run in a shell's background, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_while_workers_run_leaves_no_thread() -> None:
    """Shard 0 keeps its thread until shard 2, in the other one, has interrupted: both are there by then."""
    interrupted, begun = threading.Event(), []

    def forward(params: Any, images: Any, config: Any, rng: Any) -> Any:
        number = int(images[0, 0, 0, 0])
        begun.append(number)
        if number == 2:
            _thread.interrupt_main()
            interrupted.set()
        if number == 0:
            assert interrupted.wait(10)
        return vit.forward(params, images, config, rng)

    params, images, labels = batch(40)
    images[:, 0, 0, 0] = np.arange(40)
    model: Any = SimpleNamespace(forward=forward, backward=vit.backward)
    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        gradients(model, params, CONFIG, images, labels, shard=1, workers=2)
    assert threading.active_count() == before
    assert begun[:2] == [0, 1] and 2 in begun


MODELS = [
    *(pytest.param(vit, vit_example(choices), id=f"vit: {what}") for what, choices in VIT_CHOICES.items()),
    *(pytest.param(deit, deit_example(choices), id=f"deit: {what}") for what, choices in DEIT_CHOICES.items()),
    pytest.param(vit, vit_example({"depth": 0}), id="vit: no blocks"),
]


@pytest.mark.parametrize(("model", "config"), MODELS)
def test_gradients_handed_over_part_by_part_are_those_returned_whole(model: Any, config: Any) -> None:
    rng = np.random.default_rng(0)
    params = tree.map(lambda leaf: leaf + 0.3 * rng.standard_normal(leaf.shape), model.init(config, rng, np.float64))
    images = rng.standard_normal((3, 2, 6, 12))
    logits, cache = model.forward(params, images, config, np.random.default_rng(1))
    dlogits = tree.map(np.cos, logits)
    dimages, whole = model.backward(dlogits, cache, input_grad=True)
    parts: list[tuple[str, Any]] = []
    dimages_again, rest = model.backward(dlogits, cache, True, lambda place, grads: parts.append((place, grads)))
    assert rest == {}
    assert [place for place, _ in parts] == [*(f"blocks.{i}" for i in reversed(range(config.depth))), ""]
    joined: dict[str, Any] = {}
    for place, grads in parts:
        flat = {f"{place}.{name}" if place else name: leaf for name, leaf in tree.flatten(grads).items()}
        assert not joined.keys() & flat.keys()
        joined |= flat
    assert joined.keys() == tree.flatten(params).keys()
    for key, leaf in tree.flatten(whole).items():
        assert joined[key].tobytes() == leaf.tobytes(), key
    assert dimages_again.tobytes() == dimages.tobytes()


@pytest.mark.parametrize("shard", [None, 3])
@pytest.mark.parametrize(("model", "config"), [(vit, CONFIG), (deit, deit_example({}))], ids=["vit", "deit"])
def test_logits_are_predict_s_shard_by_shard_for_any_number_of_workers(model: Any, config: Any, shard: Any) -> None:
    rng = np.random.default_rng(0)
    params = tree.map(
        lambda leaf: (leaf + 0.3 * rng.standard_normal(leaf.shape)).astype(np.float32), model.init(config, rng)
    )
    images = rng.standard_normal((200, 2, 6, 12)).astype(np.float32)  # 2000 rows and more: some shards
    sizes: dict[int, list[int]] = {}
    for workers in (1, 2, 3):
        seen = sizes[workers] = []

        def predict(params: Any, part: Any, config: Any, seen: list[int] = seen) -> Any:
            seen.append(len(part))
            return model.predict(params, part, config)

        found = step.logits(SimpleNamespace(predict=predict), params, config, images, shard=shard, workers=workers)  # type: ignore[arg-type]
        starts = np.cumsum([0, *sorted(seen, reverse=True)])  # the last one may be smaller
        parts = [model.predict(params, images[a:b], config) for a, b in pairwise(starts)]
        assert found.tobytes() == np.concatenate(parts).tobytes()
    assert sorted(sizes[1]) == sorted(sizes[2]) == sorted(sizes[3])
    assert len(sizes[1]) > 1
    np.testing.assert_allclose(found, model.predict(params, images, config), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("images", "targets"), [(0, 0), (3, 2)])
def test_batches_that_do_not_fit_are_refused(images: int, targets: int) -> None:
    params, some, labels = batch()
    with pytest.raises(ValueError, match=f"{images} images have {targets} targets"):
        gradients(vit, params, CONFIG, some[:images], labels[:targets])
