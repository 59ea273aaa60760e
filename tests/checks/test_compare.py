"""Comparing without a framework: files that timm's models wrote, and mistakes made in our own model."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from numpy_vit import tree
from numpy_vit.checks import assert_matches
from numpy_vit.checks.causes import alternatives
from numpy_vit.checks.compare import compare
from numpy_vit.checks.comparison import SCHEMA
from numpy_vit.checks.input_causes import Preprocessing
from numpy_vit.checks.opening import open_port, port_of_params
from numpy_vit.checks.reference import Reference, ReferenceError, read_reference, write_reference
from numpy_vit.errors import CheckpointError
from numpy_vit.models import vit

FOLDER = Path(__file__).parent / "references"
MODEL = FOLDER / "model.safetensors"
B, K = 3, 7
CONFIG = vit.Config(
    image_size=12, patch_size=4, num_classes=K, embed_dim=24, depth=2, num_heads=3, hidden_dim=40, norm_eps=1e-6
)


def named(comparison):
    return [(cause.tensor, cause.name) for cause in comparison.causes]


def model(seed=0, config=CONFIG):
    rng = np.random.default_rng(seed)
    params = tree.map(lambda leaf: 0.3 * rng.standard_normal(leaf.shape), vit.init(config, rng, np.float64))
    return tree.map(lambda leaf: leaf.astype(np.float32).astype(np.float64), params)


def computed(params, config, dtype=np.float32, images=None, seed=1):
    """What our model computes, as a reference of somebody else's."""
    rng = np.random.default_rng(seed)
    drawn = rng.standard_normal((B, config.in_chans, *config.image)).astype(np.float32)
    images = drawn if images is None else images
    upstream = rng.standard_normal((B, config.num_classes)).astype(np.float32)
    params = tree.map(lambda leaf: leaf.astype(dtype), params)
    record = {}
    _, cache = vit.forward(params, images.astype(dtype), config, record=record)
    grads = tree.flatten(vit.backward(upstream.astype(dtype), cache)[1])
    return Reference(images, record, np.dtype(dtype).name, upstream, grads)


STORED = {
    "right.npz": [],
    "right_bfloat16.npz": [],
    "eps_and_tanh.safetensors": [("blocks.0.norm1", "eps 1e-05"), ("blocks.0.mlp.act", "activation gelu_tanh")],
    "heads.safetensors": [("blocks.0.attn.proj", "4 heads")],
    "position_last.safetensors": [("pos_drop", "class position last")],
    "stored_k_q_v_and_pooling.safetensors": [
        ("blocks.0.attn.qkv", "qkv stored k q v"),
        ("fc_norm", "pooling avg"),
    ],
    "no_norm.safetensors": [("norm", "final norm missing")],
    "bgr_and_quick_gelu.safetensors": [("patch_embed", "RGB and BGR"), ("blocks.0.mlp.act", "activation quick_gelu")],
}


@pytest.mark.parametrize("file", STORED)
def test_what_timm_computed(file):
    reference = read_reference(FOLDER / file)
    port = open_port(MODEL, (6, 6), num_heads=2)
    comparison = compare(port, reference)
    assert named(comparison) == STORED[file]
    assert comparison.same == (not STORED[file])
    assert {row.name for row in comparison.rows} >= {
        "blocks.0.attn.qkv",
        "logits",
        "gradient of patch_embed.proj.weight",
    }


def test_every_stored_file_is_tried():
    assert {path.name for path in FOLDER.iterdir()} == {*STORED, MODEL.name}
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 200_000


# Mistakes that change what float32 shows; each is made here by hand, not by the table of alternatives.
def _fields(**changes):
    return lambda params, config: (params, replace(config, **changes))


def _leaf(pattern, change):
    def made(params, config):
        flat = {key: change(leaf) if pattern in key else leaf for key, leaf in tree.flatten(params).items()}
        return tree.unflatten(flat), config

    return made


def _without(name):
    return lambda params, config: ({key: leaf for key, leaf in params.items() if key != name}, config)


def _heads_first(leaf):
    return np.stack([leaf[h * 24 + i * 8 : h * 24 + i * 8 + 8] for i in range(3) for h in range(3)]).reshape(leaf.shape)


def _columns_first(leaf):
    new = np.empty_like(leaf)
    for c, row, column in np.ndindex(leaf.shape[1:]):
        new[:, c, row, column] = leaf.reshape(24, -1)[:, (row * 4 + column) * 3 + c]
    return new


def _patches_only(table):
    return table * (np.arange(10) > 0)[:, None]


def _kernel(leaf):
    return leaf.swapaxes(2, 3) if leaf.ndim == 4 else leaf


MADE = {
    "eps": (_fields(norm_eps=1e-3), "blocks.0.norm1", "eps 0.001"),
    "tanh": (_fields(act="gelu_tanh"), "blocks.0.mlp.act", "activation gelu_tanh"),
    "quick": (_fields(act="quick_gelu"), "blocks.0.mlp.act", "activation quick_gelu"),
    "relu": (_fields(act="relu"), "blocks.0.mlp.act", "activation relu"),
    "heads": (_fields(num_heads=6), "blocks.0.attn.proj", "6 heads"),
    "mean": (_fields(global_pool="avg", fc_norm=False), "fc_norm", "pooling avg"),
    "post-norm": (_fields(block="post_norm"), "blocks.0.norm1", "post_norm blocks"),
    "no norm": (_without("norm"), "norm", "final norm missing"),
    "no class position": (_leaf("pos_embed", _patches_only), "pos_drop", "class position missing"),
    "proj": (_leaf("attn.proj.weight", np.transpose), "blocks.0.attn.proj", "attn.proj transposed"),
    "head bias": (_leaf("head.bias", lambda leaf: 0 * leaf), "logits", "head.bias missing"),
    "stored by heads": (_leaf("attn.qkv", _heads_first), "blocks.0.attn.qkv", "qkv sorted (heads, 3, d)"),
    "patch order": (_leaf("patch_embed.proj.weight", _columns_first), "patch_embed", "patch order (row, col, c)"),
    "kernel": (_leaf("patch_embed.proj", _kernel), "patch_embed", "patch rows and columns swapped"),
    "one block": (_leaf("s.1.attn.proj.weight", np.transpose), "blocks.1.attn.proj", "attn.proj transposed in block 1"),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("mistake", MADE)
def test_a_mistake_made_in_our_own_model_is_named(mistake, dtype):
    make, tensor, name = MADE[mistake]
    params = model()
    comparison = compare(port_of_params(params, CONFIG), computed(*make(params, CONFIG), dtype))
    assert named(comparison) == [(tensor, name)]


@pytest.mark.parametrize("pair", [("eps", "heads"), ("tanh", "no norm"), ("patch order", "mean"), ("proj", "heads")])
def test_two_mistakes_are_both_named(pair):
    params, config = model(), CONFIG
    for mistake in pair:
        params, config = MADE[mistake][0](params, config)
    comparison = compare(port_of_params(model(), CONFIG), computed(params, config))
    assert set(" and ".join(name for _, name in named(comparison)).split(" and ")) == {MADE[m][2] for m in pair}


def test_every_alternative_is_told_from_all_others():
    """In float64 each is named again from what it computes: no two of them mean the same here."""
    base = replace(port_of_params(model(), CONFIG), images=computed(model(), CONFIG).images, upstream=np.ones((B, K)))
    for one in alternatives(base):
        port = base.changed(one.change)
        outputs, cache = port.outputs(np.float64)
        reference = Reference(
            base.images, outputs, "float64", base.upstream, port.put_back(port.own_gradients(cache, np.float64))
        )
        assert [cause.name for cause in compare(base, reference).causes] == [one.name]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_same_model_is_the_same(dtype):
    for seed in range(5):
        comparison = compare(port_of_params(model(seed), CONFIG), computed(model(seed), CONFIG, dtype, seed=seed))
        assert comparison.same, str(comparison)


def test_only_logits_are_enough_to_name_a_mistake():
    reference = computed(model(), replace(CONFIG, num_heads=6))
    short = Reference(reference.images, {"logits": reference.outputs["logits"]})
    comparison = compare(port_of_params(model(), CONFIG), short)
    assert named(comparison) == [("logits", "6 heads")]
    assert "only the logits were compared" in str(comparison)


def test_what_nothing_explains_is_said_to_be_so_with_the_place():
    reference = computed(model(), CONFIG)
    outputs = {**reference.outputs, "blocks.1": reference.outputs["blocks.1"].copy()}
    outputs["blocks.1"][2, 4] += 1
    comparison = compare(port_of_params(model(), CONFIG), replace(reference, outputs=outputs))
    assert named(comparison) == [("blocks.1", "")]
    assert "in sample 2 of 3 and token 4 of 10 only" in str(comparison)


def test_half_precision_under_the_name_of_float32_is_recognised():
    reference = computed(model(), CONFIG)
    noise = np.random.default_rng(0)
    outputs = {name: x * (1 + 2e-4 * noise.uniform(-1, 1, x.shape)) for name, x in reference.outputs.items()}
    comparison = compare(port_of_params(model(), CONFIG), Reference(reference.images, outputs))
    assert named(comparison) == [("patch_embed", "computed in TF32")]


def test_gradients_alone():
    reference, port = computed(model(), CONFIG), port_of_params(model(), CONFIG)
    comparison = compare(port, reference, {key: B * leaf for key, leaf in reference.gradients.items()})
    assert comparison.first == "gradient of head.weight"
    assert "multiplied by the batch of 3" in str(comparison)
    changed = {**reference.gradients, "blocks.0.norm2.weight": -reference.gradients["blocks.0.norm2.weight"]}
    assert "wrong sign" in str(compare(port, reference, changed))


def test_two_runs_that_differ():
    reference = computed(model(), CONFIG)
    second = {**reference.outputs, "logits": reference.outputs["logits"] * 1.01}
    assert named(compare(port_of_params(model(), CONFIG), replace(reference, second=second))) == [
        ("logits", "dropout left on")
    ]


STATISTICS = {"0.5": ((0.5,) * 3, (0.5,) * 3), "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))}


@pytest.mark.parametrize(
    ("statistics", "reverse", "scale", "name"),
    [
        ("0.5", False, 255, None),
        ("imagenet", False, 255, "mean and std"),
        ("0.5", True, 255, "RGB and BGR"),
        ("0.5", False, 1, "1/255"),
        ("imagenet", True, 255, "RGB and BGR and mean and std"),
    ],
)
def test_preprocessing_is_compared_with_the_raw_pictures(statistics, reverse, scale, name):
    raw = np.random.default_rng(2).integers(0, 256, (B, 12, 12, 3), np.uint8)
    pictures = np.moveaxis(raw, -1, 1).astype(np.float64)
    mean, std = (np.reshape(values, (3, 1, 1)) for values in STATISTICS[statistics])
    images = ((pictures[:, ::-1] if reverse else pictures) / scale - mean) / std
    reference = replace(computed(model(), CONFIG, images=images.astype(np.float32)), raw=raw)
    expected = Preprocessing(*STATISTICS["0.5"], {"": pictures})
    comparison = compare(port_of_params(model(), CONFIG), reference, preprocessing=expected)
    assert named(comparison) == ([("images", name)] if name else [])


def test_positions_resized_by_another_rule(tmp_path):
    from numpy_vit.checkpoints import own, resize

    path = tmp_path / "model.safetensors"
    own.save(path, CONFIG, tree.map(lambda leaf: leaf.astype(np.float32), model()), {})
    params, config = model(), replace(CONFIG, image_size=20)
    params["pos_embed"] = resize.positions(params["pos_embed"], 1, (3, 3), (5, 5), resize.RESIZES["torchvision"])
    comparison = compare(open_port(path, (20, 20)), computed(params, config))
    assert named(comparison) == [("pos_drop", "positions resized as torchvision")]


def test_the_report_and_its_json():
    comparison = compare(port_of_params(model(), CONFIG), computed(*MADE["tanh"][0](model(), CONFIG)))
    text = str(comparison)
    assert text.startswith("DIFFERENT: the first tensor that differs is blocks.0.mlp.act\n1. With act='gelu_tanh' the")
    assert "the reference uses GELU's tanh form." in text
    assert text.count("<-- FIRST") == 1
    found = json.loads(json.dumps(comparison.to_json(), allow_nan=False))
    assert (found["schema"], found["same"], found["first_difference"]) == (SCHEMA, False, "blocks.0.mlp.act")
    assert found["causes"][0]["after"] < found["causes"][0]["before"]


def test_assert_matches(tmp_path):
    assert assert_matches(MODEL, FOLDER / "right.npz", num_heads=2).same
    with pytest.raises(AssertionError, match=r"blocks\.0\.attn\.proj"):
        assert_matches(MODEL, FOLDER / "heads.safetensors", num_heads=2)
    reference = computed(model(), CONFIG)
    write_reference(tmp_path / "own.npz", reference)
    assert_matches((model(), CONFIG), tmp_path / "own.npz")
    assert_matches((model(), CONFIG), reference)
    with pytest.raises(ValueError, match="num_heads"):
        assert_matches((model(), CONFIG), reference, num_heads=2)


@pytest.mark.parametrize("ending", ["npz", "safetensors"])
def test_a_reference_survives_its_file(tmp_path, ending):
    reference = replace(
        computed(model(), CONFIG), raw=np.zeros((B, 5, 4, 3), np.uint8), second={"logits": np.ones((B, K))}, source="x"
    )
    path = tmp_path / f"reference.{ending}"
    write_reference(path, reference)
    again = read_reference(path)
    assert (again.dtype, again.source) == ("float32", "x")
    for a, b in itertools.product((reference,), (again,)):
        np.testing.assert_array_equal(a.images, b.images)
        np.testing.assert_array_equal(a.raw, b.raw)
        for ours, theirs in ((a.outputs, b.outputs), (a.gradients, b.gradients), (a.second, b.second)):
            assert ours.keys() == theirs.keys()
            for name, leaf in ours.items():
                np.testing.assert_array_equal(leaf, theirs[name])


def test_references_that_prove_nothing_are_refused():
    right = computed(model(), CONFIG)
    with pytest.raises(ReferenceError, match="logits are all zeros"):
        Reference(right.images, {"logits": np.zeros((B, K))})
    with pytest.raises(ReferenceError, match="images are all zeros"):
        Reference(0 * right.images, right.outputs)
    with pytest.raises(ReferenceError, match="upstream are all zeros"):
        replace(right, upstream=0 * right.upstream)
    with pytest.raises(ReferenceError, match="need the upstream"):
        replace(right, upstream=None)
    with pytest.raises(ReferenceError, match="no output/logits"):
        Reference(right.images, {"norm": right.outputs["norm"]})
    with pytest.raises(ReferenceError, match="unknown"):
        replace(right, dtype="float8")


def test_what_cannot_be_compared_says_so(tmp_path):
    right = computed(model(), CONFIG)
    with pytest.raises(ReferenceError, match="the model takes"):
        compare(port_of_params(model(), CONFIG), Reference(right.images[:, :, :8], right.outputs))
    with pytest.raises(ReferenceError, match="none of them is a parameter"):
        compare(port_of_params(model(), CONFIG), right, {"encoder.weight": np.ones(3)})
    with pytest.raises(CheckpointError, match="is no reference file"):
        read_reference(MODEL)
    np.savez(tmp_path / "next.npz", numpy_vit_reference=np.array([2]), images=right.images)
    with pytest.raises(ReferenceError, match="version"):
        read_reference(tmp_path / "next.npz")


def test_a_reference_with_numbers_that_are_not_finite_differs():
    right = computed(model(), CONFIG)
    outputs = {**right.outputs, "blocks.1": right.outputs["blocks.1"] * np.nan}
    comparison = compare(port_of_params(model(), CONFIG), replace(right, outputs=outputs))
    assert comparison.first == "blocks.1"
    json.dumps(comparison.to_json(), allow_nan=False)
