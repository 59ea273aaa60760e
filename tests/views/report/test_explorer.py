"""The explorer has the model's own weights and gradients, of as many images as the page has room for."""

from __future__ import annotations

import json

import numpy as np
import pytest

from numpy_vit.errors import CheckpointError
from numpy_vit.models import deit, vit, vit_config
from numpy_vit.views import attention_maps, saliency
from numpy_vit.views.colour_maps import diverging, sequential
from numpy_vit.views.report import explorer

NAMES = ("cat", "dog", "owl")


def explored(made, **options):
    return explorer.explore(made.model, made.params, made.config, made.offered(), NAMES, **options)


def near(shown, true, steps=255):
    """Whether packed values are those of the model: to a step of the largest, and to far less where they are small."""
    scale = np.abs(true).max(axis=-1, keepdims=True)
    return (np.abs(shown - true) <= np.sqrt(np.abs(true) * scale) / steps + scale / steps**2).all()


@pytest.mark.parametrize("fields", [{}, {"reg_tokens": 2}, {"class_token": False, "global_pool": "avg"}])
def test_weights_are_those_of_the_model(small, fields):
    made = small(**fields)
    weights = attention_maps.weights(vit, made.params, made.images, made.config)
    found = explored(made)
    assert len(found) == 3
    for (one, _), true in zip(found, weights, strict=True):
        assert near(one.weights.values, true)
        assert not near(one.weights.values[:, ::-1], true), "heads that change places would be seen"


@pytest.mark.parametrize("model", [vit, deit])
def test_gradients_are_those_of_the_likeliest_class(small, model):
    made = small(model, seed=3)
    (one, _), *_ = explored(made)
    logits = model.predict(made.params, made.images[:1], made.config)[0]
    target = int(logits.argmax())
    assert one.top[0][0] == NAMES[target]
    assert one.gradients is not None
    logits, cache = model.forward(made.params, made.images[:1], made.config, record={})
    record: dict[str, np.ndarray] = {}
    model.backward(saliency.upstream(logits, target), cache, record=record)
    true = np.stack(model.attention_gradients(cache, record), axis=1)[0]
    assert near(one.gradients.values, true, 127)
    assert np.abs(true).max() > 0


def test_a_model_without_a_head_has_no_gradients(small):
    found = explored(small(num_classes=0))
    assert [(one.top, one.gradients, entry["gradients"]) for one, entry in found] == [((), None, None)] * 3


def test_shares_and_names_of_the_answer(small):
    made = small()
    (one, entry), *_ = explored(made)
    logits = vit.predict(made.params, made.images[:1], made.config)[0].astype(np.float64)
    shares = np.exp(logits) / np.exp(logits).sum()
    assert [name for name, _ in one.top] == [NAMES[i] for i in np.argsort(-shares)]
    np.testing.assert_allclose([share for _, share in one.top], np.sort(shares)[::-1], rtol=1e-5)
    assert entry["top"][0][1].endswith(" %")
    assert entry["truth"] == "owl"


def test_the_budget_decides_how_many_images_there_are(small):
    made = small()
    sizes = [len(entry["weights"]) + len(entry["gradients"]) for _, entry in explored(made)]
    assert len(explored(made, budget=3 * max(sizes))) == 3
    assert len(explored(made, budget=2 * max(sizes))) == 2
    assert len(explored(made, budget=0)) == 1, "the first one comes in any case"


def test_heads_are_averaged_where_they_take_too_much_and_refused_where_their_mean_does():
    tiny, large = vit_config("vit_tiny_patch16_224"), vit_config("vit_large_patch16_224")
    assert explorer.heads_shown(tiny) == 3
    assert explorer.heads_shown(vit_config("vit_base_patch16_224")) == 12
    assert explorer.heads_shown(large) == 1
    assert explorer.heads_shown(vit_config("vit_large_patch16_224", image_size=512)) == 0
    assert explorer.heads_shown(vit.Config(8, 2, 1, 10, 16, 0, 2)) == 0


def test_averaged_heads_are_the_mean(small, monkeypatch):
    made = small()
    weights = attention_maps.weights(vit, made.params, made.images, made.config)
    per_head = 4 / 3 * 2 * 2 * made.config.num_tokens**2
    monkeypatch.setattr(explorer, "ALONE", 1.5 * per_head)
    (one, entry), *_ = explored(made)
    assert one.weights.codes.shape[1] == 1
    assert near(one.weights.values[:, 0], weights[0].mean(axis=1))
    assert explorer.script_data(made.config, [entry])["averaged"]
    monkeypatch.setattr(explorer, "ALONE", 0.5 * per_head)
    with pytest.raises(ValueError, match="too large"):
        explored(made)


def test_what_the_script_is_told(small):
    made = small(reg_tokens=2)
    data = json.loads(json.dumps(explorer.script_data(made.config, [])))
    assert (data["grid"], data["size"], data["blocks"], data["heads"]) == ([4, 3], [8, 12], 2, 2)
    assert data["prefix"] == ["class token", "register 0", "register 1"]
    assert data["start"] == 0
    assert data["sequential"][255] == sequential(np.array(1.0)).tolist()
    assert data["diverging"][127] == diverging(np.array(0.0)).tolist()
    assert explorer.prefix_names(small(deit).config) == ["class token", "distillation token"]
    bare = small(class_token=False, global_pool="avg").config
    assert explorer.script_data(bare, [])["start"] == 2 * 3 + 1, "the patch in the middle: row 2, column 1"


def test_numbers_that_are_not_finite_are_told(small):
    made = small()
    made.params["blocks"][0]["attn"]["qkv"]["bias"][:] = np.nan
    with pytest.raises(CheckpointError, match="inspect"):
        explored(made)
