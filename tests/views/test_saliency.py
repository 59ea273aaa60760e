"""What speaks for a class: completeness, a linear model's closed form, finite differences, and rollout written out."""

from __future__ import annotations

import numpy as np
import pytest

from numpy_vit import tree
from numpy_vit.models import deit, vit
from numpy_vit.views import saliency, saliency_picture

SIZES = {"image_size": (6, 8), "patch_size": (3, 2), "num_classes": 3, "embed_dim": 8, "depth": 2, "num_heads": 2}


def example(module=vit, **fields):
    config = module.Config(**{**SIZES, **fields})
    rng = np.random.default_rng(5)
    params = tree.map(lambda leaf: leaf + 0.4 * rng.standard_normal(leaf.shape), module.init(config, rng, np.float64))
    return config, params, rng.standard_normal((3, 6, 8))


MODELS = [(vit, {}), (vit, {"class_token": False, "global_pool": "avg"}), (vit, {"block": "post_norm"}), (deit, {})]


@pytest.mark.parametrize(("module", "fields"), MODELS)
def test_contributions_sum_to_the_difference_of_the_logits(module, fields):
    config, params, image = example(module, **fields)
    found = saliency.integrated_gradients(module, params, image, config, 1, steps=200)
    logits = module.predict(params, np.stack([image, 0 * image]), config)[:, 1]
    assert found.contributions.sum() == pytest.approx(logits[0] - logits[1], rel=1e-6)
    assert found.residual == pytest.approx(found.contributions.sum() - (found.logit - found.baseline_logit))
    assert abs(logits[0] - logits[1]) > 0.1  # not trivially so
    coarse = saliency.integrated_gradients(module, params, image, config, 1, steps=2)
    assert abs(found.residual) < abs(coarse.residual)


def test_a_linear_model_has_a_closed_form():
    """Without blocks and norms, the logit is linear in the image: both methods give weight times input."""
    config, params, image = example(depth=0, class_token=False, global_pool="avg", final_norm=False, fc_norm=False)
    weight = params["patch_embed"]["proj"]["weight"]  # (D, C, py, px)
    by_pixel = np.tensordot(params["head"]["weight"][2], weight, axes=1) / config.num_patches  # (C, py, px)
    expected = image * np.tile(by_pixel, (1, *config.grid))
    product = saliency.gradient_times_input(vit, params, image, config, 2)
    np.testing.assert_allclose(product, expected, rtol=1e-10)
    found = saliency.integrated_gradients(vit, params, image, config, 2, steps=1)
    np.testing.assert_allclose(found.contributions, expected, rtol=1e-10)
    assert abs(found.residual) < 1e-12


@pytest.mark.parametrize(("module", "fields"), MODELS)
def test_the_gradient_is_that_of_predict(module, fields):
    config, params, image = example(module, **fields)
    product = saliency.gradient_times_input(module, params, image, config, 0)
    rng, h = np.random.default_rng(1), 1e-5
    direction = rng.standard_normal(image.shape)
    both = module.predict(params, np.stack([image + h * direction, image - h * direction]), config)[:, 0]
    assert (product / image * direction).sum() == pytest.approx((both[0] - both[1]) / (2 * h), rel=1e-6)


@pytest.mark.parametrize(("module", "fields"), MODELS)
def test_attention_gradients_are_what_the_softmax_passes_on(module, fields):
    """Shifting a score by hand changes the logit by p (G - Σ p G): the softmax's Jacobian around the gradient G."""
    config, params, image = example(module, **fields)
    logits, cache = module.forward(params, image[None], config, record={})
    record = {}
    module.backward(saliency.upstream(logits, 1), cache, record=record)
    weights, gradients = module.attention_weights(cache), module.attention_gradients(cache, record)
    # the query bias of head 1, direction 0, moves every score of that head by k / sqrt(d) in block 0
    bias = params["blocks"][0]["attn"]["qkv"]["bias"]
    h, place, d = 1e-5, 4, 4
    ends = []
    for sign in (1, -1):
        bias[place] += sign * h
        ends.append(module.predict(params, image[None], config)[0, 1])
        bias[place] -= sign * h
    recorded = {}
    module.forward(params, image[None], config, record=recorded)
    tokens = len(recorded["blocks.0.attn.qkv"][0])
    k = recorded["blocks.0.attn.qkv"].reshape(tokens, 3, 2, d)[:, 1, 1, 0]
    p, G = weights[0][0, 1], gradients[0][0, 1]
    dscores = p * (G - (p * G).sum(axis=-1, keepdims=True))
    assert (dscores * k / np.sqrt(d)).sum() == pytest.approx((ends[0] - ends[1]) / (2 * h), rel=1e-6)


def test_weighted_rollout_written_out():
    config, params, image = example(depth=3)
    logits, cache = vit.forward(params, image[None], config, record={})
    record = {}
    vit.backward(saliency.upstream(logits, 2), cache, record=record)
    relevance = np.eye(9)
    for weights, gradients in zip(vit.attention_weights(cache), vit.attention_gradients(cache, record), strict=True):
        passed = np.maximum(weights[0] * gradients[0], 0).mean(axis=0)
        relevance = relevance + passed @ relevance
    row = (relevance - np.eye(9))[0, 1:]
    found = saliency.weighted_rollout(vit, params, image, config, 2)
    np.testing.assert_allclose(found.ravel(), row / row.sum(), rtol=1e-9)
    other = saliency.weighted_rollout(vit, params, image, config, 0)
    assert abs(found - other).max() > 1e-3  # it depends on the class, as plain rollout does not


def test_no_steps_are_refused():
    config, params, image = example()
    with pytest.raises(ValueError, match="0 steps"):
        saliency.integrated_gradients(vit, params, image, config, 0, steps=0)


def test_sums_over_patches_keep_the_sum_and_the_place():
    contributions = np.zeros((3, 6, 8))
    contributions[:, 4, 3] = 1, 2, 3
    found = saliency_picture.over_patches(contributions, (2, 4))
    assert found[1, 1] == found.sum() == 6


def test_the_picture_has_five_tiles_and_shows_the_strongest_patch():
    image = np.full((32, 32, 3), 128, np.uint8)
    product = np.zeros((3, 32, 32))
    product[:, 8:16, 16:24] = 1
    rollout = np.full((4, 4), 0.01)
    rollout[1, 2] = 0.85
    picture = np.asarray(saliency_picture.picture(image, product, -product, rollout, "a title"), int)
    vermilion = (abs(picture - (0xD5, 0x5E, 0x00)).sum(axis=-1) < 6).sum()
    blue = (abs(picture - (0x00, 0x72, 0xB2)).sum(axis=-1) < 6).sum()
    side = 224 // 32 * 8
    assert side**2 <= vermilion < 1.3 * side**2  # gradient x input alone speaks for it, and the colour bar's end
    assert 2 * side**2 <= blue < 2.6 * side**2  # both others speak against it
