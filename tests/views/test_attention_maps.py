"""Attention as maps over patches: against closed forms, against rollout written out, and on a model made by hand."""

from __future__ import annotations

import numpy as np
import pytest

from numpy_vit import tree
from numpy_vit.errors import CheckpointError
from numpy_vit.models import deit, vit
from numpy_vit.views import attention_maps


def config(**fields):
    usual = {"image_size": (6, 8), "patch_size": (3, 2), "num_classes": 3, "embed_dim": 8, "depth": 2, "num_heads": 2}
    return vit.Config(**{**usual, **fields})


def drawn(rng, *shape):
    """Rows that sum to 1."""
    values = rng.random(shape)
    return values / values.sum(axis=-1, keepdims=True)


def model(made, module=vit, scale=1.0):
    rng = np.random.default_rng(3)
    params = module.init(made, rng, np.float64)
    return tree.map(lambda leaf: leaf + scale * rng.standard_normal(leaf.shape), params)


@pytest.mark.parametrize("block", ["pre_norm", "post_norm"])
@pytest.mark.parametrize("reg_tokens", [0, 2])
def test_weights_are_rows_that_sum_to_one_and_make_the_recorded_output(block, reg_tokens):
    made = config(block=block, reg_tokens=reg_tokens)
    params, images = model(made, scale=0.3), np.random.default_rng(0).standard_normal((3, 3, 6, 8))
    found = attention_maps.weights(vit, params, images, made)
    tokens = made.num_prefix_tokens + 8
    assert found.shape == (3, 2, 2, tokens, tokens)
    np.testing.assert_allclose(found.sum(axis=-1), 1, rtol=1e-12)
    record = {}
    vit.forward(params, images, made, record=record)
    for i in range(2):  # the weights times the values, projected, are what the block's attention gave
        _, _, v = np.split(record[f"blocks.{i}.attn.qkv"].reshape(3, tokens, 3, 2, 4), 3, axis=2)
        mixed = np.einsum("bhmn,bnhd->bmhd", found[:, i], v[:, :, 0]).reshape(3, tokens, 8)
        proj = params["blocks"][i]["attn"]["proj"]
        np.testing.assert_allclose(mixed @ proj["weight"].T + proj["bias"], record[f"blocks.{i}.attn"], rtol=1e-9)


def test_maps_of_the_class_token_are_its_row_without_the_prefix():
    made = config(reg_tokens=1)
    weights = drawn(np.random.default_rng(0), 2, 2, 2, 10, 10)
    assert attention_maps.reader(made) == "class token"
    found = attention_maps.maps(weights, made)
    row = weights[..., 0, 2:]
    np.testing.assert_allclose(found.reshape(2, 2, 2, 8), row / row.sum(axis=-1, keepdims=True), rtol=1e-12)
    assert found.shape == (2, 2, 2, 2, 4)  # 2 rows of 4 patches


@pytest.mark.parametrize(
    "fields", [{"class_token": False, "global_pool": "avg"}, {"global_pool": "avg"}, {"global_pool": "map"}]
)
def test_maps_of_a_mean_pooled_model_are_what_patches_receive(fields):
    made = config(**fields)
    T = made.num_prefix_tokens
    weights = drawn(np.random.default_rng(0), 1, 2, 2, T + 8, T + 8)
    assert attention_maps.reader(made) == "received"
    received = np.zeros(8)
    for m in range(8):
        received += weights[0, 1, 0, T + m, T:]
    np.testing.assert_allclose(
        attention_maps.maps(weights, made)[0, 1, 0].ravel(), received / received.sum(), rtol=1e-12
    )


def test_rollout_written_out():
    made = config(depth=3)
    weights = drawn(np.random.default_rng(1), 1, 3, 2, 9, 9)
    first, second, third = (0.5 * np.eye(9) + 0.5 * (layer[0] + layer[1]) / 2 for layer in weights[0])
    row = (third @ second @ first)[0, 1:]
    np.testing.assert_allclose(attention_maps.rollout(weights, made).ravel(), row / row.sum(), rtol=1e-12)


def test_rollout_of_uniform_attention_is_uniform_and_of_none_knows_nothing():
    made = config(class_token=False, global_pool="avg")
    uniform = np.full((1, 2, 2, 8, 8), 1 / 8)
    np.testing.assert_allclose(attention_maps.rollout(uniform, made), np.full((1, 2, 4), 1 / 8), rtol=1e-12)
    themselves = np.broadcast_to(np.eye(8), (1, 2, 2, 8, 8))
    np.testing.assert_allclose(attention_maps.rollout(themselves, made), np.full((1, 2, 4), 1 / 8), rtol=1e-12)
    nothing = attention_maps.on_grid(np.zeros(8), made)
    np.testing.assert_array_equal(nothing, np.full((2, 4), 1 / 8))


def test_coverage_and_share_on_the_object():
    made = config()
    mask = np.zeros((1, 6, 8), bool)
    mask[0, :3, :3] = True  # the first patch of the first row, and half of the second
    coverage = attention_maps.coverage(mask, made)
    np.testing.assert_array_equal(coverage[0], [[1, 0.5, 0, 0], [0, 0, 0, 0]])
    maps = np.zeros((1, 2, 2, 4))
    maps[0, 0, 0, 0] = 1
    maps[0, 1] = 1 / 8
    np.testing.assert_allclose(attention_maps.share_on(maps, coverage), [[1, 1.5 / 8]])
    assert coverage.mean() == 1.5 / 8  # a map that knows nothing gives the share of the area
    with pytest.raises(ValueError, match="masks"):
        attention_maps.coverage(np.zeros((1, 5, 8)), made)


def test_each_image_has_its_own_mask():
    """Maps of one hot patch each, elsewhere in each image, block and head: the shares are the masks' values there."""
    made, rng = config(image_size=(8, 8), patch_size=2), np.random.default_rng(0)  # a transposed mask would fit
    masks = rng.random((3, 8, 8)) < 0.4
    coverage = attention_maps.coverage(masks, made)
    places = rng.integers(0, 4, (3, 2, 2, 2))  # (B, L, H, yx)
    maps, expected = np.zeros((3, 2, 2, 4, 4)), np.zeros((3, 2, 2))
    for place in np.ndindex(3, 2, 2):
        y, x = places[place]
        maps[place][y, x] = 1
        expected[place] = sum(masks[place[0], 2 * y + i, 2 * x + j] for i in (0, 1) for j in (0, 1)) / 4
    np.testing.assert_allclose(attention_maps.share_on(maps, coverage), expected)
    for wrong in (masks[::-1], masks.swapaxes(1, 2)):  # what this test is to notice
        assert abs(attention_maps.share_on(maps, attention_maps.coverage(wrong, made)) - expected).max() > 0.2


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_weights_that_are_not_finite_are_refused_and_never_even(bad):
    made = config()
    params = model(made, scale=0.3)
    params["blocks"][1]["attn"]["qkv"]["weight"][0, 0] = bad
    with pytest.raises(CheckpointError, match=r"attention weights are not finite numbers: .* numpy-vit inspect"):
        attention_maps.weights(vit, params, np.ones((1, 3, 6, 8)), made)
    assert np.isnan(attention_maps.on_grid(np.full(8, np.nan), made)).all()


def test_a_distilled_model_and_a_model_without_blocks():
    made = deit.Config(image_size=(6, 8), patch_size=(3, 2), num_classes=3, embed_dim=8, depth=1, num_heads=2)
    images = np.zeros((1, 3, 6, 8))
    assert attention_maps.weights(deit, model(made, deit), images, made).shape == (1, 1, 2, 10, 10)
    empty = config(depth=0)
    with pytest.raises(ValueError, match="0 blocks"):
        attention_maps.weights(vit, model(empty), images, empty)


def test_a_head_that_was_made_to_look_at_one_patch_does():
    """Keys that know one direction, which one patch alone has, draw every query there."""
    made = config(depth=1, num_heads=1, class_token=False, global_pool="avg")
    params = model(made, scale=0.0)
    D = made.embed_dim
    qkv = params["blocks"][0]["attn"]["qkv"]
    qkv["weight"][:] = 0
    qkv["bias"][:D] = 0
    qkv["bias"][0] = 40  # every query: along direction 0
    qkv["weight"][D, 0] = 1  # keys: direction 0 of the token
    params["pos_embed"][:] = 0
    params["pos_embed"][0, 5, 0], params["pos_embed"][0, :, 1] = 3, 1e-3
    found = attention_maps.maps(attention_maps.weights(vit, params, np.zeros((1, 3, 6, 8)), made), made)
    assert np.unravel_index(found[0, 0, 0].argmax(), (2, 4)) == (1, 1)
    assert found[0, 0, 0, 1, 1] > 0.99
