"""Frozen parameters keep their bits, cost no gradients, and change nothing of what the others learn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from numpy_vit import tree
from numpy_vit.models import partly_frozen, vit
from numpy_vit.training import loop
from numpy_vit.training.freezing import frozen_names, training_form
from numpy_vit.training.step import gradients

NAMES = [
    "cls_token", "pos_embed", "patch_embed.proj.weight", "patch_embed.proj.bias", "blocks.0.norm1.weight",
    "blocks.0.attn.qkv.weight", "blocks.1.norm1.weight", "blocks.1.attn.qkv.weight", "norm.weight", "head.weight",
]  # fmt: skip


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (None, []),
        ("patch_embed", NAMES[2:4]),
        ("blocks.0", NAMES[4:6]),
        ("blocks.*.attn,head", [NAMES[5], NAMES[7], NAMES[9]]),
        ("blocks.[0-1].norm1.weight", [NAMES[4], NAMES[6]]),
        ("stem,blocks.0", NAMES[:6]),
        ("body", NAMES[:9]),
    ],
)
def test_patterns_name_parameters_or_what_they_are_part_of(patterns: str | None, expected: list[str]) -> None:
    assert frozen_names(NAMES, patterns) == set(expected)


def test_patterns_that_cannot_be_meant() -> None:
    with pytest.raises(ValueError, match=r"nothing to freeze is called 'block'"):
        frozen_names(NAMES, "block")
    with pytest.raises(ValueError, match=r"freezes every parameter"):
        frozen_names(NAMES, "*")


@pytest.mark.parametrize(
    ("patterns", "first"),
    [
        ("body", 3),
        ("stem", 0),
        ("cls_token,pos_embed,patch_embed,blocks.0,blocks.1", 2),
        ("cls_token,pos_embed,patch_embed,blocks.1", 0),  # block 0 learns: the gradient has to get there
        ("blocks.0", None),  # the stem learns
    ],
)
def test_the_form_begins_where_learning_does(patterns: str, first: int | None) -> None:
    config = _config()
    names = tree.flatten(vit.init(config, np.random.default_rng(0)))
    model, form = training_form(vit, config, names, frozen_names(names, patterns))
    if first is None:
        assert (model, form) == (vit, config)
    else:
        assert model is partly_frozen
        assert form.frozen_blocks == first


@pytest.mark.parametrize("first", [0, 1, 2, 3])
@pytest.mark.parametrize("pool", ["token", "avg"])
def test_what_learns_has_the_gradients_that_the_whole_model_has(first: int, pool: str) -> None:
    config = replace(_config(), global_pool=pool)
    rng = np.random.default_rng(1)
    params = vit.init(config, rng, np.float64)
    images, labels = rng.normal(size=(3, 3, 8, 8)), np.array([1, 0, 4])
    form = partly_frozen.Config(**{**vars(config), "frozen_blocks": first})
    found = gradients(partly_frozen, params, form, images, labels)
    whole = gradients(vit, params, config, images, labels)
    np.testing.assert_allclose(found.logits, whole.logits, rtol=1e-12)
    learns = ("norm", "fc_norm", "head", *(f"blocks.{i}." for i in range(first, 3)))
    learning = [name for name in tree.flatten(params) if name.startswith(learns)]
    got, expected = tree.flatten(found.grads), tree.flatten(whole.grads)
    for name in learning:
        np.testing.assert_allclose(got[name], expected[name], rtol=1e-9, atol=1e-12, err_msg=name)
        assert np.abs(expected[name]).max() > 0 or name.endswith("qkv.bias")
    for name in set(got) - set(learning):
        assert not got[name].any(), name


@pytest.mark.parametrize("patterns", ["body", "cls_token,pos_embed,patch_embed,blocks.0", "blocks.*.attn,head"])
@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_a_run_keeps_the_bits_of_what_is_frozen(
    small_task: Callable[..., loop.Task], patterns: str, optimizer: str
) -> None:
    task = small_task(freeze=patterns, epochs=2, optimizer=optimizer, layer_decay=0.8)
    state = loop.start(task)
    before = {name: array.copy() for name, array in tree.flatten(state.params).items()}
    loop.train(task, state, lambda *_: None, lambda *_: None)
    frozen = frozen_names(before, patterns)
    for name, array in tree.flatten(state.params).items():
        same = array.tobytes() == before[name].tobytes()
        assert same == (name in frozen), name
    learning = sum(array.size for name, array in before.items() if name not in frozen)
    assert max(array.size for array in state.optimizer.values()) == learning  # no moments for what stays


def test_frozen_parts_keep_no_caches() -> None:
    config = _config()
    params = vit.init(config, np.random.default_rng(0))
    images = np.zeros((2, 3, 8, 8), np.float32)
    form = partly_frozen.Config(**{**vars(config), "frozen_blocks": 3})
    _, cache = partly_frozen.forward(params, images, form)
    _, whole = vit.forward(params, images, config)
    assert _bytes(cache) < _bytes(whole) / 20


def test_patches_are_dropped_before_frozen_blocks_too() -> None:
    config = replace(_config(), patch_drop_rate=0.5, norm_eps=1e-5)
    params = vit.init(config, np.random.default_rng(0), np.float64)
    images = np.random.default_rng(1).normal(size=(2, 3, 8, 8))
    form = partly_frozen.Config(**{**vars(config), "frozen_blocks": 2})
    dropped, _ = partly_frozen.forward(params, images, form, np.random.default_rng(2))
    whole, _ = vit.forward(params, images, config, np.random.default_rng(2))
    np.testing.assert_allclose(dropped, whole, rtol=1e-12)
    assert not np.allclose(dropped, partly_frozen.forward(params, images, form)[0], rtol=1e-6)


def test_more_frozen_blocks_than_there_are() -> None:
    with pytest.raises(ValueError, match="frozen_blocks 4 has to lie in 0 to 3"):
        partly_frozen.Config(**{**vars(_config()), "frozen_blocks": 4})


def _bytes(node: Any) -> int:
    if isinstance(node, np.ndarray):
        return int(node.nbytes)
    return sum(map(_bytes, node)) if isinstance(node, (list, tuple)) else 0


def _config() -> vit.Config:
    return vit.Config(image_size=8, patch_size=2, num_classes=5, embed_dim=16, depth=3, num_heads=2)
