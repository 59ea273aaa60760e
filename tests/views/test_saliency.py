"""What speaks for a class: completeness, a linear model's closed form, finite differences, and rollout written out."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from numpy_vit import tree
from numpy_vit.errors import CheckpointError
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


READERS = [  # which rows the logit reads
    (vit, {}, [0]),
    (vit, {"reg_tokens": 1, "global_pool": "token_avg"}, [0, 2, 3, 4, 5, 6, 7, 8, 9]),
    (vit, {"global_pool": "avg"}, [1, 2, 3, 4, 5, 6, 7, 8]),
    (vit, {"global_pool": "avg", "pool_include_prefix": True}, [0, 1, 2, 3, 4, 5, 6, 7, 8]),
    (vit, {"global_pool": "map"}, [1, 2, 3, 4, 5, 6, 7, 8]),
    (deit, {}, [0, 1]),
]


def passed_on(module, params, image, config, dlogits):
    """The positive part of gradient times weight of each block, averaged over heads: the edges (L, R, R)."""
    _, cache = module.forward(params, image[None], config, record={})
    record = {}
    module.backward(dlogits, cache, record=record)
    pairs = zip(module.attention_weights(cache), module.attention_gradients(cache, record), strict=True)
    return np.array([np.maximum(weights[0] * gradients[0], 0).mean(axis=0) for weights, gradients in pairs])


@pytest.mark.parametrize(("module", "fields", "read"), READERS)
def test_weighted_rollout_written_out(module, fields, read):
    config, params, image = example(module, depth=3, **fields)
    logits, _ = module.forward(params, image[None], config)
    first, second, third = passed_on(module, params, image, config, saliency.upstream(logits, 2))
    # of every path over one, two or three blocks: what it passes on
    paths = first + second + third + second @ first + third @ first + third @ second + third @ second @ first
    row = paths[read, config.num_prefix_tokens :].sum(axis=0)
    assert saliency.rows_read(config) == read
    found = saliency.weighted_rollout(module, params, image, config, 2)
    np.testing.assert_allclose(found.ravel(), row / row.sum(), rtol=1e-9)
    other = saliency.weighted_rollout(module, params, image, config, 0)
    assert abs(found - other).max() > 1e-3  # it depends on the class, as plain rollout does not


def halves(module, params, image, config):
    """The edges (R, R) of the last block for each of two parts of the logit of class 2, computed apart."""
    one = np.array([[0.0, 0.0, 1.0]])
    if module is deit:
        return [passed_on(deit, params, image, config, heads)[0] for heads in ((one / 2, 0 * one), (0 * one, one / 2))]
    found = []
    for half in (slice(config.embed_dim, None), slice(0, config.embed_dim)):  # without the mean, without the token
        changed = tree.map(np.copy, params)
        changed["head"]["weight"][:, half] = 0
        found.append(passed_on(vit, changed, image, config, one)[0])
    return found


@pytest.mark.parametrize(("module", "fields"), [(deit, {}), (vit, {"global_pool": "token_avg"})])
def test_what_two_readers_see_adds_up(module, fields):
    """With one block, the map of a sum of two logits is the sum of their maps: no half is lost, none counted twice."""
    config, params, image = example(module, depth=1, **fields)
    T = config.num_prefix_tokens
    token, other = halves(module, params, image, config)
    np.testing.assert_array_equal(token[1:], 0)  # this half reads the first row alone
    parts = token[0, T:], (other[1, T:] if module is deit else other[T:, T:].sum(axis=0))
    row = parts[0] + parts[1]
    found = saliency.weighted_rollout(module, params, image, config, 2).ravel()
    np.testing.assert_allclose(found, row / row.sum(), rtol=1e-9)
    assert min(part.sum() for part in parts) > 0.1 * row.sum()  # both matter
    assert abs(parts[0] / parts[0].sum() - found).max() > 0.01  # the class token alone says something else


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_numbers_that_are_not_finite_are_refused(bad):
    config, params, image = example()
    params["blocks"][0]["attn"]["qkv"]["weight"][0, 0] = bad
    for compute in (saliency.gradient_times_input, saliency.integrated_gradients, saliency.weighted_rollout):
        with pytest.raises(CheckpointError, match="not finite numbers: look at the checkpoint with numpy-vit inspect"):
            compute(vit, params, image, config, 0)
    with pytest.raises(CheckpointError, match="the logits are not finite"):
        saliency.predict(vit, params, image[None], config)


def test_no_steps_too_many_and_no_blocks_are_refused():
    config, params, image = example()
    with pytest.raises(ValueError, match="0 steps"):
        saliency.integrated_gradients(vit, params, image, config, 0, steps=0)
    with pytest.raises(ValueError, match=r"100000 steps .* take 1024 at most"):
        saliency.integrated_gradients(vit, params, image, config, 0, steps=100_000)
    config, params, image = example(depth=0)
    with pytest.raises(ValueError, match="0 blocks"):
        saliency.weighted_rollout(vit, params, image, config, 0)


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


def test_each_tile_shows_its_own_map_the_right_way_up():
    image = np.random.default_rng(0).integers(1, 255, (4, 8, 3), dtype=np.uint8)
    product, contributions, rollout = np.zeros((3, 4, 8)), np.zeros((3, 4, 8)), np.zeros((2, 4))
    product[0, 0, 7] = contributions[2, 3, 6] = 1.0
    rollout[1, 2] = 1.0
    picture = np.asarray(saliency_picture.picture(image, product, contributions, rollout, "a title"))
    (top, bottom), *_ = [run for run in runs((picture != 255).any(axis=(1, 2))) if np.diff(run) == 112]
    columns = [run for run in runs((picture[top:bottom] != 255).any(axis=(0, 2))) if np.diff(run) == 224]
    shown, one, two, summed, heat = (picture[top + 14 : bottom : 28, left + 14 : right : 28] for left, right in columns)
    np.testing.assert_array_equal(shown, image)
    for tile, places in ((one, [(0, 7)]), (two, [(3, 6)]), (summed, [(2, 6), (2, 7), (3, 6), (3, 7)])):
        vermilion = (tile == (0xD5, 0x5E, 0x00)).all(axis=-1)
        assert [tuple(place) for place in np.argwhere(vermilion)] == places
    grey = np.asarray(Image.fromarray(image).convert("L")) * 0.4
    hot = np.kron(rollout, np.ones((2, 2)))[..., None]
    colours = hot * (0xFD, 0xE7, 0x25) + (1 - hot) * (0x44, 0x01, 0x54)
    np.testing.assert_array_equal(heat, (grey[..., None] + 0.6 * colours).round())


def runs(there):
    """Where runs of true begin and end."""
    return np.flatnonzero(np.diff(np.concatenate([[False], there, [False]]).astype(int))).reshape(-1, 2)
