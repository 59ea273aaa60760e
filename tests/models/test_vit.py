"""The Vision Transformer: the paper's equations one by one, timm's sizes, and what every configuration owes."""

from __future__ import annotations

import math

import numpy as np
import pytest

from numpy_vit import tree
from numpy_vit.checks import gradcheck
from numpy_vit.checks.examples import VIT_CHOICES, vit_example
from numpy_vit.layers import block as pre_norm_block
from numpy_vit.layers import cross_entropy, patchify, post_norm_block, readout_block
from numpy_vit.models import variant_names, vit, vit_config

every_choice = pytest.mark.parametrize("what", VIT_CHOICES)
MICRO = vit_config("vit_micro_patch16_64")


def shaken(config, rng, dtype=np.float64, size=0.3):
    """Random parameters away from their start, where biases and tokens are zero and gammas one."""
    params = vit.init(config, rng, dtype)
    return tree.map(lambda leaf: leaf + (size * rng.standard_normal(leaf.shape)).astype(dtype), params)


def example(what, dtype=np.float64):
    rng = np.random.default_rng(1)
    config = vit_example(VIT_CHOICES[what])
    images = rng.standard_normal((3, config.in_chans, *config.image)).astype(dtype)
    return config, shaken(config, rng, dtype), images, np.array([0, 2, 1])


# Values


def naive_vit(params, images, config):
    """Equations 1 to 4 of Dosovitskiy et al., image by image and head by head, without any layer of ours."""

    def linear(part, rows):
        return rows @ part["weight"].T + part["bias"]

    def norm(part, rows):
        mean, variance = rows.mean(axis=-1, keepdims=True), rows.var(axis=-1, keepdims=True)
        return (rows - mean) / np.sqrt(variance + config.norm_eps) * part["weight"] + part["bias"]

    (Y, X), (py, px), D = config.image, config.patch, config.embed_dim
    d = D // config.num_heads
    gelu = np.vectorize(lambda u: 0.5 * u * math.erfc(-u / math.sqrt(2)))
    logits = []
    for image in images:
        patches = [image[:, y : y + py, x : x + px].ravel() for y in range(0, Y, py) for x in range(0, X, px)]
        proj = params["patch_embed"]["proj"]
        tokens = np.array(patches) @ proj["weight"].reshape(D, -1).T + proj["bias"]
        z = np.concatenate([params["cls_token"][0], tokens]) + params["pos_embed"][0]
        for block in params["blocks"]:
            qkv = linear(block["attn"]["qkv"], norm(block["norm1"], z))
            heads = []
            for h in range(config.num_heads):
                q, k, v = (qkv[:, third * D + h * d : third * D + (h + 1) * d] for third in range(3))
                weights = np.exp(q @ k.T / math.sqrt(d))
                heads.append(weights / weights.sum(axis=1, keepdims=True) @ v)
            z = z + linear(block["attn"]["proj"], np.concatenate(heads, axis=1))
            z = z + linear(block["mlp"]["fc2"], gelu(linear(block["mlp"]["fc1"], norm(block["norm2"], z))))
        logits.append(linear(params["head"], norm(params["norm"], z)[0]))
    return np.array(logits)


def test_the_logits_are_the_papers_on_images_that_are_not_square():
    config, params, images, _ = example("class token")
    logits, _ = vit.forward(params, images, config)
    np.testing.assert_allclose(logits, naive_vit(params, images, config), rtol=1e-10, atol=1e-12)


@pytest.fixture(scope="module")
def micro():
    rng = np.random.default_rng(0)
    params = vit.init(MICRO, rng)
    images = rng.standard_normal((2, 3, 64, 64)).astype(np.float32)
    record = {}
    logits, _ = vit.forward(params, images, MICRO, record=record)
    return params, images, record, logits


def test_the_records_values(micro):
    params, images, record, logits = micro
    shapes = {"patch_embed": (2, 16, 192), "pos_drop": (2, 17, 192), "norm": (2, 17, 192), "logits": (2, 10)}
    assert {name: record[name].shape for name in shapes} == shapes
    corner = images[1, :, 48:, 32:48].ravel()  # patch 14 of 16, row 3 and column 2
    proj = params["patch_embed"]["proj"]
    expected = proj["weight"].reshape(192, -1) @ corner + proj["bias"]
    np.testing.assert_allclose(record["patch_embed"][1, 14], expected, rtol=1e-4, atol=1e-5)
    pos_drop, positions = record["pos_drop"], params["pos_embed"][0]
    np.testing.assert_array_equal(pos_drop[:, 0], np.repeat(params["cls_token"][0] + positions[:1], 2, axis=0))
    np.testing.assert_array_equal(pos_drop[:, 1:], record["patch_embed"] + positions[1:])
    norm = record["norm"].astype(np.float64)  # gamma is 1 and beta 0
    np.testing.assert_allclose(norm.mean(axis=-1), 0, atol=1e-6)
    np.testing.assert_allclose(norm.var(axis=-1), 1, atol=1e-3)
    head = params["head"]
    np.testing.assert_allclose(logits, record["norm"][:, 0] @ head["weight"].T + head["bias"], rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(record["logits"], logits)


def test_the_records_names_and_residual_sums(micro):
    _, _, record, _ = micro
    parts = ["norm1", "attn.qkv", "attn.proj", "attn", "norm2", "mlp.fc1", "mlp.act", "mlp.fc2", "mlp"]
    blocks = [f"blocks.{i}" for i in range(6)]
    assert {f"{name}.{part}" for name in blocks for part in parts} | set(blocks) <= record.keys()
    assert {"patch_embed", "pos_drop", "norm", "logits"} <= record.keys()
    before = record["pos_drop"]
    for name in blocks:
        expected = before + record[f"{name}.attn"] + record[f"{name}.mlp"]
        np.testing.assert_allclose(record[name], expected, rtol=1e-4, atol=1e-5)
        before = record[name]


def test_a_record_changes_nothing(micro):
    params, images, _, logits = micro  # recorded: every token of the last block
    np.testing.assert_allclose(vit.forward(params, images, MICRO)[0], logits, atol=1e-6)


READS = [what for what in VIT_CHOICES if vit_example(VIT_CHOICES[what]).block_forms(False)[-1] is readout_block]


@pytest.mark.parametrize("drop_path", [0.0, 0.5])
@pytest.mark.parametrize("what", READS)
@pytest.mark.parametrize("depth", [1, 3])
def test_the_token_that_is_read_suffices(what, depth, drop_path):
    """A record wants every token of the last block; without one it computes one, and nothing else differs."""
    rates = {name: 0.0 for name in VIT_CHOICES[what] if "rate" in name}  # their masks have a number for each token
    config = vit_example({**VIT_CHOICES[what], **rates, "depth": depth, "drop_path_rate": drop_path})
    rng = np.random.default_rng(1)
    params, images = shaken(config, rng), rng.standard_normal((4, 2, 6, 12))
    record = {}
    whole, whole_cache = vit.forward(params, images, config, np.random.default_rng(5), record)
    logits, cache = vit.forward(params, images, config, np.random.default_rng(5))
    assert record[f"blocks.{depth - 1}"].shape[1] == config.num_prefix_tokens + 9
    dlogits = rng.standard_normal(logits.shape)
    expected = tree.flatten([whole, *vit.backward(dlogits, whole_cache, input_grad=True)])
    found = tree.flatten([logits, *vit.backward(dlogits, cache, input_grad=True)])
    assert found.keys() == expected.keys()
    for key, leaf in expected.items():
        np.testing.assert_allclose(found[key], leaf, rtol=1e-12, atol=1e-12 * np.abs(leaf).max(), err_msg=key)
    still, _ = vit.forward(params, images, config, record={})
    np.testing.assert_allclose(vit.predict(params, images, config), still, rtol=1e-12, atol=1e-12)


def test_only_where_one_token_is_read_the_last_block_computes_one():
    assert {"class token", "registers without positions, SwiGLU", "norms before, no biases"} <= set(READS)
    for what, choices in VIT_CHOICES.items():
        config = vit_example(choices)
        plain = post_norm_block if config.block == "post_norm" else pre_norm_block
        reads = config.global_pool == "token" and config.block == "pre_norm"
        assert config.block_forms(every_token=True) == [plain, plain]
        assert config.block_forms(every_token=False) == [plain, readout_block if reads else plain], what
        assert (what in READS) == reads
    assert vit_example({"depth": 0}).block_forms(every_token=False) == []
    assert vit_example({"depth": 1}).block_forms(every_token=False) == [readout_block]


# Sizes


def parameters(config):
    """The number of parameters of a plain ViT, from its sizes."""
    D, F, K = config.embed_dim, config.hidden, config.num_classes
    patch = config.in_chans * math.prod(config.patch) * D + D
    tokens = (1 + config.num_patches) * D + D
    block = 2 * 2 * D + (D * 3 * D + 3 * D) + (D * D + D) + (D * F + F) + (F * D + D)
    return patch + tokens + config.depth * block + 2 * D + (D * K + K)


@pytest.mark.parametrize(
    ("name", "overrides", "count"),
    [
        ("vit_tiny_patch16_224", {}, 5_717_416),
        ("vit_small_patch16_224", {}, 22_050_664),
        ("vit_base_patch32_224", {}, 88_224_232),
        ("vit_base_patch16_224", {}, 86_567_656),
        ("vit_large_patch16_224", {}, 304_326_632),
        ("vit_huge_patch14_224", {}, 632_045_800),
        ("vit_micro_patch16_64", {}, 2_822_602),
        ("vit_tiny_patch16_224", {"num_classes": 10}, 5_717_416 - 990 * 193),
    ],
)
def test_the_published_numbers_of_parameters(name, overrides, count):
    assert parameters(vit_config(name, **overrides)) == count


@pytest.mark.parametrize("name", ["vit_micro_patch16_64", "vit_base_patch16_224"])
def test_init_makes_that_many(name):
    config = vit_config(name)
    assert tree.count(vit.init(config, np.random.default_rng(0))) == parameters(config)


def test_init_starts_where_timm_does():
    flat = tree.flatten(vit.init(MICRO, np.random.default_rng(0)))
    for key, leaf in flat.items():
        if key.endswith("bias"):
            assert (leaf == 0).all(), key
        elif "norm" in key:
            assert (leaf == 1).all(), key
        elif key == "patch_embed.proj.weight":
            assert np.abs(leaf).max() == pytest.approx(1 / math.sqrt(3 * 16 * 16), rel=1e-3)
        else:
            std = 1e-6 if key == "cls_token" else 0.02
            assert leaf.std() == pytest.approx(std, rel=4 / math.sqrt(2 * leaf.size)), key


# Positions


def permuted_patches(images, config, order):
    patches, _ = patchify.forward(images, config.patch)
    return patchify.unpatchify(patches[:, order], images.shape[1:], config.patch)


@pytest.mark.parametrize("global_pool", ["token", "avg", "map"])
@pytest.mark.parametrize("pos_embed", ["none", "learned", "sincos_1d", "sincos_2d_mae", "sincos_2d_simple"])
def test_only_a_position_table_sees_the_order_of_the_patches(pos_embed, global_pool):
    rng = np.random.default_rng(0)
    config = vit_example({"pos_embed": pos_embed, "global_pool": global_pool})
    params, images = shaken(config, rng), rng.standard_normal((2, 2, 6, 12))
    logits, _ = vit.forward(params, images, config)
    moved = permuted_patches(images, config, [4, 0, 8, 2, 1, 7, 3, 6, 5])
    gap = np.abs(vit.forward(params, moved, config)[0] - logits).max()
    assert gap < 1e-12 if pos_embed == "none" else gap > 1e-4


# What every configuration owes


def zero_gradients(config):
    """The entries whose gradients are zero by mathematics: what shifts every score of a query alike."""
    D, zero = config.num_heads * (config.head_dim or config.embed_dim // config.num_heads), {}
    for i in range(config.depth):
        if config.qk_norm:
            zero[f"blocks.{i}.attn.k_norm.bias"] = slice(None)
        elif config.qkv_bias:
            zero[f"blocks.{i}.attn.qkv.bias"] = slice(D, 2 * D)
    if config.global_pool == "map":
        zero["attn_pool.kv.bias"] = slice(0, D)
    return zero


@every_choice
def test_every_parameter_has_a_gradient_and_moves(what):
    config, params, images, targets = example(what)
    rng = np.random.default_rng(2) if "dropout" in what else None
    logits, cache = vit.forward(params, images, config, rng)
    _, loss_cache = cross_entropy.forward(logits, targets)
    dimages, grads = vit.backward(cross_entropy.backward(1.0, loss_cache), cache)
    assert dimages is None
    zero, flat, gradients = zero_gradients(config), tree.flatten(params), tree.flatten(grads)
    assert zero.keys() <= flat.keys()
    for key, leaf in flat.items():
        expected = np.ones(leaf.shape, bool)
        if key in zero:
            expected[zero[key]] = False
            assert np.abs(gradients[key][zero[key]]).max() < 1e-14, key
        touched = np.abs(gradients[key]) > 1e-14
        if rng is None:
            np.testing.assert_array_equal(touched, expected, err_msg=key)
        else:  # dropout silences some entries, never a whole array
            assert touched.any() == expected.any(), key
        before = leaf.copy()
        leaf -= 0.1 * gradients[key]
        assert (leaf != before).any() == expected.any() or key in zero, key
    assert (vit.predict(params, images, config) != vit.predict(example(what)[1], images, config)).all()


@pytest.mark.parametrize("what", [what for what in VIT_CHOICES if "dropout" not in what])
def test_a_small_sgd_step_lowers_the_loss_by_the_squared_gradient(what):
    # A loss or a gradient that is scaled by the batch, or a missing part of it, changes this number.
    config, params, images, targets = example(what)
    logits, cache = vit.forward(params, images, config)
    loss, loss_cache = cross_entropy.forward(logits, targets)
    _, grads = vit.backward(cross_entropy.backward(1.0, loss_cache), cache)
    gradients = tree.flatten(grads)
    square = sum(float(np.vdot(g, g)) for g in gradients.values())
    rate = 1e-5 / square

    def loss_after(rate):
        moved = tree.unflatten({key: leaf - rate * gradients[key] for key, leaf in tree.flatten(params).items()})
        return cross_entropy.forward(vit.predict(moved, images, config), targets)[0]

    assert loss == pytest.approx((loss_after(-rate) + loss_after(rate)) / 2, rel=1e-6)
    assert (loss_after(-rate) - loss_after(rate)) / 2 == pytest.approx(rate * square, rel=1e-6)


@every_choice
def test_gradients_along_directions(what):
    config, params, images, _ = example(what)

    def forward(params, x):
        return vit.forward(params, x, config, np.random.default_rng(5))

    def backward(dlogits, cache):
        return vit.backward(dlogits, cache, input_grad=True)

    gradcheck(forward, backward, params, images, directions=1, rng=np.random.default_rng(6)).raise_if_failed()


def floating(node, path=""):
    """Yield every floating array in nested tuples, lists and dicts."""
    if isinstance(node, dict):
        node = node.items()
    elif isinstance(node, (tuple, list)):
        node = enumerate(node)
    else:
        if isinstance(node, (np.ndarray, np.generic)) and node.dtype.kind == "f":
            yield path, node
        return
    for name, child in node:
        yield from floating(child, f"{path}[{name}]")


@every_choice
def test_float32_from_images_to_gradients(what):
    config, params, images, targets = example(what, np.float32)
    record = {}
    logits, cache = vit.forward(params, images, config, np.random.default_rng(5), record)
    loss, loss_cache = cross_entropy.forward(logits, targets)
    dimages, grads = vit.backward(cross_entropy.backward(1.0, loss_cache), cache, input_grad=True)
    everything = [record, logits, cache, loss, loss_cache, dimages, grads, vit.predict(params, images, config)]
    found = list(floating(everything))
    assert len(found) > 50
    assert {path: leaf.dtype for path, leaf in found if leaf.dtype != np.float32} == {}
    wide = tree.map(np.float64, params)
    exact, _ = vit.forward(wide, images.astype(np.float64), config, np.random.default_rng(5), {})
    np.testing.assert_allclose(logits, exact, rtol=1e-3, atol=1e-4)


@every_choice
def test_evaluation_is_predict_and_the_same_twice(what):
    config, params, images, _ = example(what, np.float32)
    logits, _ = vit.forward(params, images, config)
    assert vit.forward(params, images, config)[0].tobytes() == logits.tobytes()
    assert vit.predict(params, images, config).tobytes() == logits.tobytes()


@pytest.mark.parametrize(
    "rates",
    [{name: 0.5} for name in ("drop_rate", "pos_drop_rate", "proj_drop_rate", "attn_drop_rate", "drop_path_rate")],
    ids=lambda rates: next(iter(rates)),
)
def test_each_rate_drops_with_a_generator_and_only_then(rates):
    rng = np.random.default_rng(0)
    config = vit_example(rates)
    params, images = shaken(config, rng), rng.standard_normal((3, 2, 6, 12))
    off = vit.predict(params, images, config)
    np.testing.assert_array_equal(off, vit.predict(params, images, vit_example({})))
    on, _ = vit.forward(params, images, config, np.random.default_rng(1))
    again, _ = vit.forward(params, images, config, np.random.default_rng(1))
    other, _ = vit.forward(params, images, config, np.random.default_rng(2))
    np.testing.assert_array_equal(on, again)
    assert (on != off).any() and (on != other).any()


def test_drop_path_rises_linearly_from_zero():
    rates = [spec.drop_path for spec in vit_example({"depth": 5, "drop_path_rate": 0.2}).blocks]
    np.testing.assert_allclose(rates, [0, 0.05, 0.1, 0.15, 0.2], rtol=1e-15)
    assert vit_example({"depth": 1, "drop_path_rate": 0.2}).blocks[0].drop_path == 0


@every_choice
def test_images_do_not_see_each_other(what):
    config, params, images, _ = example(what)
    changed = images.copy()
    changed[1] = -images[1]
    logits, moved = vit.predict(params, images, config), vit.predict(params, changed, config)
    np.testing.assert_array_equal(logits[[0, 2]], moved[[0, 2]])
    assert (logits[1] != moved[1]).all()


@pytest.mark.parametrize("global_pool", ["token", "avg", "map"])
def test_without_classes_the_model_returns_what_the_head_would_get(global_pool):
    rng = np.random.default_rng(0)
    config, bare = (vit_example({"global_pool": global_pool, "num_classes": k}) for k in (3, 0))
    params, images = shaken(config, rng), rng.standard_normal((2, 2, 6, 12))
    head = params.pop("head")
    features = vit.predict(params, images, bare)
    logits = vit.predict({**params, "head": head}, images, config)
    np.testing.assert_allclose(features @ head["weight"].T + head["bias"], logits, rtol=1e-12, atol=1e-13)


# Configurations


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"image_size": (6, 13)}, "image_size 6x13 .*2x4 patches.*divides.*6x16"),
        ({"num_heads": 3}, "num_heads 3 does not divide embed_dim 8.*(2|4) heads"),
        ({"class_token": False}, "'token' needs class_token=True.*'avg' or 'map'"),
        ({"embed_dim": 7, "num_heads": 1, "pos_embed": "sincos_1d"}, "'sincos_1d'.*multiple of 2, not 7"),
        ({"embed_dim": 6, "num_heads": 1, "pos_embed": "sincos_2d_mae"}, "'sincos_2d_mae'.*multiple of 4, not 6"),
        ({"embed_dim": 4, "num_heads": 1, "pos_embed": "sincos_2d_simple"}, "at least 8, not 4"),
        ({"pos_embed": "rotary"}, "pos_embed 'rotary'.*'learned', 'sincos_1d'"),
        ({"act": "elu"}, "act 'elu'.*'gelu', 'gelu_tanh', 'quick_gelu'"),
        ({"global_pool": "max"}, "global_pool 'max'.*'token', 'avg', 'token_avg', 'map'"),
        ({"block": "parallel"}, "block 'parallel'.*'pre_norm', 'post_norm'"),
        ({"drop_rate": 1.0}, r"drop_rate 1.0 has to lie in \[0, 1\)"),
        ({"drop_path_rate": -0.1}, r"drop_path_rate -0.1 has to lie in \[0, 1\)"),
        ({"norm_eps": 0.0}, "norm_eps 0.0 has to be positive"),
        ({"image_size": (6, 12, 3)}, r"image_size \(6, 12, 3\)"),
        ({"patch_size": 0}, "patch_size 0"),
        ({"in_chans": 0}, "in_chans 0 has to be .*at least 1"),
        ({"num_classes": -1}, "num_classes -1 has to be .*at least 0"),
    ],
)
def test_contradictions_are_named_with_their_numbers_and_remedy(choices, message):
    with pytest.raises(ValueError, match=message):
        vit_example(choices)


@pytest.mark.parametrize("shape", [(3, 3, 6, 12), (3, 2, 6, 16), (3, 2, 12, 6), (2, 6, 12)])
def test_images_that_do_not_fit_the_model(shape):
    config = vit_example({})
    with pytest.raises(ValueError, match=r"\(B, 2, 6, 12\).*(convert or resize).*(in_chans or image_size)"):
        vit.forward(vit.init(config, np.random.default_rng(0)), np.zeros(shape, np.float32), config)


def test_a_patch_that_leaves_few_tokens_is_warned_about():
    with pytest.warns(UserWarning, match="16x16 patches leave only 4 tokens of a 32x32.*accuracy will suffer.*size 4"):
        vit_config("vit_tiny_patch16_32")


def test_variants_have_timms_sizes():
    sizes = {
        "vit_tiny_patch16_224": (192, 12, 3, 768), "vit_small_patch16_224": (384, 12, 6, 1536),
        "vit_base_patch16_224": (768, 12, 12, 3072), "vit_large_patch16_224": (1024, 24, 16, 4096),
        "vit_huge_patch14_224": (1280, 32, 16, 5120),
    }  # fmt: skip
    for name, expected in sizes.items():
        config = vit_config(name)
        assert (config.embed_dim, config.depth, config.num_heads, config.hidden) == expected
        assert (config.num_classes, config.in_chans, config.image) == (1000, 3, (224, 224))
        assert config.norm_eps == 1e-6
    assert vit_config("vit_base_patch16_384").num_patches == 576
    assert {*sizes, "vit_micro_patch4_32", "vit_digits_patch2_8"} <= set(variant_names())


def test_every_variant_that_is_named_exists_and_overrides_replace():
    for name in variant_names():
        config = vit_config(name, num_classes=7, drop_rate=0.1)
        assert (config.num_classes, config.drop_rate) == (7, 0.1)
        side, image = name.rsplit("_", 2)[1:]
        assert config.image[0] == int(image)
        width = config.image[1] if side == "rows" else int(side.removeprefix("patch"))
        assert config.patch[1] == width


@pytest.mark.parametrize("name", ["vit_giant_patch16_224", "vit_base_patch15_225", "resnet50", "vit_base_patch16"])
def test_an_unknown_variant_lists_those_that_exist(name):
    with pytest.raises(ValueError, match=f"'{name}'.*vit_micro_patch4_32.*vit_tiny_patch16_224.*vit_huge_patch14_224"):
        vit_config(name)
