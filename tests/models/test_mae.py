"""The masked autoencoder: what it sees, its gradients and their sums over shards, its start, its configuration."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from numpy_vit import tree
from numpy_vit.checks import gradcheck
from numpy_vit.checks.mae_examples import MAE_CHOICES, mae_example
from numpy_vit.checks.model_examples import vit_example
from numpy_vit.models import mae, vit


def shaken(config, rng, dtype=np.float64):
    """Random parameters away from their start, where biases are zero and gammas one."""
    params = mae.init(config, rng, np.float64)
    return tree.map(lambda leaf: (leaf + 0.3 * rng.standard_normal(leaf.shape)).astype(dtype), params)


def example(batch=3, dtype=np.float64, **choices):
    rng = np.random.default_rng(1)
    config = mae_example(choices)
    params = shaken(config, rng, dtype)
    images = rng.standard_normal((batch, config.encoder.in_chans, *config.encoder.image)).astype(dtype)
    return config, params, images, rng.random((batch, config.encoder.num_patches))


# Gradients


def check(config, params, images, noise, directions=None, rng=None, seed=None):
    def forward(params, x):
        return mae.forward(params, images, config, noise, None if seed is None else np.random.default_rng(seed))

    def backward(dloss, cache):
        return (), mae.backward(dloss, cache)  # images have no gradient

    return gradcheck(forward, backward, params, (), directions=directions, rng=rng)


@pytest.mark.parametrize("what", MAE_CHOICES)
def test_gradients_along_directions(what):
    config, params, images, noise = example(**MAE_CHOICES[what])
    report = check(config, params, images, noise, 1)
    report.raise_if_failed()
    assert {row.name for row in report.rows} == {f"params.{key}" for key in tree.flatten(params)} | {"everything"}


@pytest.mark.slow
def test_every_entry_of_every_gradient():
    check(*example()).raise_if_failed()


@settings(max_examples=5, deadline=None)
@given(data=st.data(), seed=st.integers(0, 2**32 - 1))
def test_gradients_of_any_configuration(data, seed):
    draw, rng = data.draw, np.random.default_rng(seed)
    py, px = draw(st.integers(1, 3)), draw(st.integers(2, 3))
    encoder = vit_example({
        "image_size": (draw(st.integers(2, 3)) * py, 4 * px), "patch_size": (py, px),
        "in_chans": draw(st.sampled_from([1, 3])), "pos_embed": "sincos_2d_mae", "depth": draw(st.integers(0, 2)),
        "init_values": draw(st.sampled_from([None, 0.5])),
    })  # fmt: skip
    config = mae_example({
        "encoder": encoder, "mask_ratio": draw(st.floats(0.2, 0.85)), "norm_pix_loss": draw(st.booleans()),
        "decoder_depth": draw(st.integers(1, 2)), "decoder_embed_dim": draw(st.sampled_from([4, 8])),
    })  # fmt: skip
    batch = draw(st.integers(1, 3))
    params, noise = shaken(config, rng), rng.random((batch, encoder.num_patches))
    images = rng.standard_normal((batch, encoder.in_chans, *encoder.image))
    check(config, params, images, noise, 1, rng).raise_if_failed()


@pytest.mark.slow  # a failed check goes entry by entry
@pytest.mark.parametrize(
    ("where", "name", "spoil"),
    [
        # what each spoils, and the first parameter on the way down that has to notice
        ("masked_patch_loss", "decoder_pred.bias", lambda dx: 1.001 * dx),
        ("random_masking", "patch_embed.proj.weight", lambda dx: dx[:, ::-1]),  # removed patches get the gradient
        ("random_masking", "cls_token", lambda dx: np.roll(dx, 1, axis=1)),
    ],
)
def test_a_broken_layer_is_noticed(where, name, spoil, monkeypatch):
    """The negative control of the checks above."""
    config, params, images, noise = example()
    layer = getattr(mae, where)
    right = layer.backward
    monkeypatch.setattr(layer, "backward", lambda dy, cache: spoil(right(dy, cache)))
    report = check(config, params, images, noise, 1)
    assert f"params.{name}" in {row.name for row in report.rows if not row.ok}


def test_dropout_and_drop_path_are_the_encoder_s():
    encoder = vit_example({"pos_embed": "sincos_2d_mae", "pos_drop_rate": 0.2, "proj_drop_rate": 0.2,
                           "attn_drop_rate": 0.2, "drop_path_rate": 0.4})  # fmt: skip
    config, params, images, noise = example(encoder=encoder)
    check(config, params, images, noise, 1, seed=7).raise_if_failed()
    still, _ = mae.forward(params, images, config, noise)
    assert still == mae.forward(params, images, replace(config, encoder=vit_example({"pos_embed": "sincos_2d_mae"})),
                                noise)[0]  # fmt: skip
    assert still != mae.forward(params, images, config, noise, np.random.default_rng(7))[0]


def test_gradients_handed_over_part_by_part_are_those_returned_whole():
    config, params, images, noise = example()
    _, cache = mae.forward(params, images, config, noise)
    whole = mae.backward(1.5, cache)
    parts = []
    assert mae.backward(1.5, cache, lambda place, grads: parts.append((place, grads))) == {}
    assert [place for place, _ in parts] == ["decoder_blocks.1", "decoder_blocks.0", "blocks.1", "blocks.0", ""]
    joined = {}
    for place, grads in parts:
        flat = {f"{place}.{name}" if place else name: leaf for name, leaf in tree.flatten(grads).items()}
        assert not joined.keys() & flat.keys()
        joined |= flat
    assert joined.keys() == tree.flatten(params).keys() == tree.flatten(whole).keys()
    for key, leaf in tree.flatten(whole).items():
        assert joined[key].tobytes() == leaf.tobytes(), key


@pytest.mark.parametrize("norm_pix_loss", [True, False])
def test_shards_with_the_whole_batch_s_denominator_add_up(norm_pix_loss):
    config, params, images, noise = example(7, norm_pix_loss=norm_pix_loss)
    whole, cache = mae.forward(params, images, config, noise)
    grads = tree.flatten(mae.backward(1.0, cache))
    loss, total = 0.0, {key: np.zeros_like(leaf) for key, leaf in grads.items()}
    for part in (slice(0, 3), slice(3, 6), slice(6, 7)):
        share, cache = mae.forward(
            params, images[part], config, noise[part], denominator=len(images) * config.num_masked
        )
        loss += share
        for key, leaf in tree.flatten(mae.backward(1.0, cache)).items():
            total[key] += leaf
    assert loss == pytest.approx(whole, rel=1e-13)
    for key, leaf in grads.items():
        np.testing.assert_allclose(total[key], leaf, rtol=1e-10, atol=1e-13, err_msg=key)


# What it sees


@pytest.mark.parametrize("norm_pix_loss", [True, False])
def test_removed_pixels_influence_nothing_but_the_target(norm_pix_loss):
    config, params, images, noise = example(norm_pix_loss=norm_pix_loss)
    prediction, mask = mae.reconstruct(params, images, config, noise)
    assert mask.dtype == bool
    assert mask.sum(axis=1).tolist() == [config.num_masked] * 3 == [7] * 3
    np.testing.assert_array_equal(mask, noise > np.sort(noise, axis=1)[:, config.num_visible - 1 : config.num_visible])
    patches = mae.patches_of(images, config)
    other = patches + 5 * np.random.default_rng(2).standard_normal(patches.shape)
    hidden = mae.images_of(np.where(mask[..., None], other, patches), config)
    seen = mae.images_of(np.where(mask[..., None], patches, other), config)
    assert mae.reconstruct(params, hidden, config, noise)[0].tobytes() == prediction.tobytes()
    changed = mae.reconstruct(params, seen, config, noise)[0]
    assert (changed != prediction).any(axis=-1).all()  # every patch is predicted from what is seen
    loss, _ = mae.forward(params, images, config, noise)
    assert mae.forward(params, hidden, config, noise)[0] != loss


def test_images_are_independent():
    config, params, images, noise = example()
    prediction, _ = mae.reconstruct(params, images, config, noise)
    for b in range(3):
        alone, _ = mae.reconstruct(params, images[b : b + 1], config, noise[b : b + 1])
        np.testing.assert_allclose(alone[0], prediction[b], rtol=1e-11, atol=1e-13)


def test_the_loss_is_that_of_the_reconstruction():
    for norm_pix_loss in (True, False):
        config, params, images, noise = example(norm_pix_loss=norm_pix_loss)
        prediction, mask = mae.reconstruct(params, images, config, noise)
        target = mae.patches_of(images, config)
        if norm_pix_loss:
            target = (target - target.mean(-1, keepdims=True)) / np.sqrt(target.var(-1, keepdims=True, ddof=1) + 1e-6)
        expected = np.mean((prediction - target)[mask] ** 2)  # all patches have the same size
        assert mae.forward(params, images, config, noise)[0] == pytest.approx(expected, rel=1e-12)


def test_patches_are_row_column_channel():
    config, _, images, _ = example()
    patches = mae.patches_of(images, config)
    assert patches.shape == (3, 9, 16)
    np.testing.assert_array_equal(patches[2, 5].reshape(2, 4, 2), images[2, :, 2:4, 8:12].transpose(1, 2, 0))
    np.testing.assert_array_equal(mae.images_of(patches, config), images)


def test_complete_fills_the_gaps_alone():
    config, _, images, _ = example()
    mask = np.arange(9) >= np.array([[3], [5], [8]])
    target = mae.masked_patch_loss.normalised(mae.patches_of(images, config))[0]
    np.testing.assert_allclose(mae.complete(images, target, mask, config), images, rtol=1e-12, atol=1e-12)
    filled = mae.patches_of(mae.complete(images, 0 * target, mask, config), config)
    patches = mae.patches_of(images, config)
    np.testing.assert_array_equal(filled[~mask], patches[~mask])
    np.testing.assert_allclose(filled[mask], patches.mean(-1, keepdims=True)[mask] + np.zeros(16), rtol=1e-12)
    plain = replace(config, norm_pix_loss=False)
    np.testing.assert_array_equal(mae.patches_of(mae.complete(images, target, mask, plain), plain)[mask], target[mask])


# Afterwards


@pytest.mark.parametrize("pool", ["token", "avg", "token_avg"])
def test_the_encoder_is_an_ordinary_vit(pool):
    encoder = vit_example({"pos_embed": "sincos_2d_mae", "global_pool": pool, "fc_norm": False, "num_classes": 5})
    config, params, images, _ = example(encoder=encoder)
    found, whole = mae.encoder_params(params, config)
    expected = vit.init(whole, np.random.default_rng(0), np.float64)
    assert {key: leaf.shape for key, leaf in tree.flatten(found).items()} == {
        key: leaf.shape for key, leaf in tree.flatten(expected).items()
    }
    assert (whole.num_classes, whole.global_pool) == (0, pool)
    assert all(leaf is tree.flatten(params)[key] for key, leaf in tree.flatten(found).items())
    features = vit.predict(found, images, whole)
    record = {}
    vit.forward(found, images, whole, record=record)
    tokens = record["norm"]  # as trained, so before pooling
    wanted = {"token": tokens[:, 0], "avg": tokens[:, 1:].mean(axis=1)}
    wanted["token_avg"] = np.concatenate([wanted["token"], wanted["avg"]], axis=1)
    np.testing.assert_allclose(features, wanted[pool], rtol=1e-12, atol=1e-13)


def test_the_encoder_that_is_taken_out_is_the_one_that_was_trained(monkeypatch):
    """Without attention, what a token becomes does not depend on which others are visible."""
    config, params, images, noise = example()
    for block in params["blocks"]:
        block["attn"]["proj"]["weight"][:] = 0
    found, whole = mae.encoder_params(params, config)
    record, tokens = {}, []
    vit.forward(found, images, whole, record=record)
    right = mae.mask_tokens.forward

    def embedded(params, x, *rest):
        tokens.append(x)
        return right(params, x, *rest)

    monkeypatch.setattr(mae.mask_tokens, "forward", embedded)
    mae.reconstruct(params, images, config, noise)
    shuffle, _ = mae.random_masking.orders(noise)
    every, embed = record["norm"], params["decoder_embed"]
    expected = np.concatenate([every[:, :1], np.take_along_axis(every, 1 + shuffle[:, :2, None], axis=1)], axis=1)
    np.testing.assert_allclose(tokens[0], expected @ embed["weight"].T + embed["bias"], rtol=1e-11, atol=1e-12)


# Numbers and start


def test_float32_stays_float32_and_is_the_same_function():
    config, params, images, noise = example()
    exact, cache = mae.forward(params, images, config, noise)
    dexact = tree.flatten(mae.backward(1.0, cache))
    _, narrow, images32, _ = example(dtype=np.float32)
    loss, cache = mae.forward(narrow, images32, config, noise)
    assert loss.dtype == np.float32
    assert loss == pytest.approx(exact, rel=1e-5)
    for dloss in (1.0, np.float32(1.0), np.float64(1.0), np.ones(())):
        for key, leaf in tree.flatten(mae.backward(dloss, cache)).items():
            assert leaf.dtype == np.float32, key
            np.testing.assert_allclose(leaf, dexact[key], rtol=1e-3, atol=1e-5, err_msg=key)
    prediction, _ = mae.reconstruct(narrow, images32, config, noise)
    assert prediction.dtype == np.float32
    assert mae.complete(images32, prediction, noise > 0.5, config).dtype == np.float32


def test_the_start_is_the_reference_code_s():
    params = mae.init(mae.Config(), np.random.default_rng(0))
    flat = tree.flatten(params)
    tokens = {key: leaf for key, leaf in flat.items() if leaf.ndim == 3}
    assert {key: leaf.shape for key, leaf in tokens.items()} == {"cls_token": (1, 1, 128), "mask_token": (1, 1, 64)}
    for leaf in tokens.values():
        assert leaf.std() == pytest.approx(0.02, rel=0.3)
    for key, leaf in flat.items():
        assert leaf.dtype == np.float32
        if leaf.ndim in (2, 4):
            bound = np.sqrt(6 / (leaf.shape[0] + leaf[0].size))
            assert 0.98 * bound < np.abs(leaf).max() <= bound * (1 + 1e-6), key
            assert leaf.std() == pytest.approx(bound / np.sqrt(3), rel=0.05), key
        elif leaf.ndim == 1:
            assert (leaf == (0 if key.endswith("bias") else 1)).all(), key
    again = mae.init(mae.Config(), np.random.default_rng(0), np.float64)
    np.testing.assert_array_equal(again["decoder_pred"]["weight"].astype(np.float32), params["decoder_pred"]["weight"])


def test_the_names_are_the_reference_code_s():
    block = ["norm1", "attn.qkv", "attn.proj", "norm2", "mlp.fc1", "mlp.fc2"]
    modules = ["patch_embed.proj", "norm", "decoder_embed", "decoder_norm", "decoder_pred"]
    modules += [f"blocks.{i}.{part}" for i in range(6) for part in block]
    modules += [f"decoder_blocks.{i}.{part}" for i in range(2) for part in block]
    expected = {f"{module}.{leaf}" for module in modules for leaf in ("weight", "bias")}
    flat = tree.flatten(mae.init(mae.Config(), np.random.default_rng(0)))
    assert flat.keys() == expected | {"cls_token", "mask_token"}
    assert flat["decoder_pred.weight"].shape == (48, 64)
    assert flat["decoder_blocks.1.mlp.fc1.weight"].shape == (128, 64)  # twice the width, as in the encoder


def test_a_few_steps_of_gradient_descent_lower_the_loss():
    config, params, images, noise = example()
    first, cache = mae.forward(params, images, config, noise)
    for _ in range(20):
        grads = mae.backward(1.0, cache)
        params = tree.map(lambda leaf, gradient: leaf - 0.1 * gradient, params, grads)
        loss, cache = mae.forward(params, images, config, noise)
    assert loss < 0.8 * first


# Configuration


def test_numbers_of_a_configuration():
    config = mae.Config()
    assert (config.num_visible, config.num_masked, config.patch_pixels) == (16, 48, 48)
    assert (config.decoder.hidden, config.decoder.embed_dim, len(config.decoder.blocks)) == (128, 64, 2)
    base = vit.Config(num_classes=0, pos_embed="sincos_2d_mae")
    paper = mae.Config(base, decoder_embed_dim=512, decoder_depth=8, decoder_num_heads=16)
    assert (paper.num_visible, paper.num_masked, paper.decoder.hidden) == (49, 147, 2048)
    assert replace(paper, decoder_hidden_dim=100).decoder.hidden == 100
    assert hash(paper) == hash(replace(paper))
    encoder = vit_example({"pos_embed": "sincos_2d_mae", "image_size": (4, 20)})  # 10 patches
    # int(10 * (1 - 0.7)) is 3, int(10 * (1 - 0.9)) is 0: the reference code's arithmetic, not the decimal one
    assert mae_example({"encoder": encoder, "mask_ratio": 0.7}).num_visible == int(10 * (1 - 0.7)) == 3


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"encoder": {"class_token": False, "global_pool": "avg"}}, "class_token True, not False"),
        ({"encoder": {"reg_tokens": 2}}, "reg_tokens 0, not 2"),
        ({"encoder": {"pos_embed": "learned"}}, "pos_embed 'sincos_2d_mae', not 'learned'"),
        ({"encoder": {"final_norm": False}}, "final_norm True, not False"),
        ({"encoder": {"patch_drop_rate": 0.5}}, "patch_drop_rate 0.0, not 0.5"),
        ({"encoder": {"global_pool": "map"}}, "global_pool 'map'"),
        ({"mask_ratio": 1.0}, r"mask_ratio 1.0 has to lie between 0 and 1"),
        ({"mask_ratio": 0.95}, "mask_ratio 0.95 leaves 0 of 9 patches visible"),
        ({"decoder_depth": 0}, "decoder_depth 0 lets no mask token see"),
        ({"decoder_num_heads": 3}, "the decoder's num_heads 3 does not divide embed_dim 4"),
        ({"decoder_embed_dim": 6}, "the decoder's pos_embed 'sincos_2d_mae' needs an embed_dim that is a multiple"),
        ({"encoder": {"image_size": (3, 3), "patch_size": 1, "in_chans": 1}}, "norm_pix_loss needs patches of more"),
    ],
)
def test_what_does_not_go_together_is_refused(choices, message):
    if "encoder" in choices:
        choices = {**choices, "encoder": vit_example({"pos_embed": "sincos_2d_mae", **choices["encoder"]})}
    with pytest.raises(ValueError, match=message):
        mae_example(choices)


def test_noise_and_images_of_another_shape_are_refused():
    config, params, images, noise = example()
    for function in (mae.forward, mae.reconstruct):
        with pytest.raises(ValueError, match=r"noise \(2, 9\).*each image, \(3, 9\)"):
            function(params, images, config, noise[:2])
        with pytest.raises(ValueError, match=r"images \(3, 1, 6, 12\) do not fit"):
            function(params, images[:, :1], config, noise)
