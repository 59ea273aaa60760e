"""Loading: wrappers taken off, fields inferred and assumed, everything told, and what is wrong refused."""

from __future__ import annotations

import json

import numpy as np
import pytest

from numpy_vit import tree
from numpy_vit.checkpoints import own, safetensors
from numpy_vit.checkpoints.load import load
from numpy_vit.checks.model_examples import VIT_CHOICES, deit_example, vit_example
from numpy_vit.errors import CheckpointError
from numpy_vit.models import deit, vit


def tensors(model=vit, **fields):
    """A small model's tensors under timm's names; a square grid of 4x4 patches unless told otherwise."""
    square = {"image_size": 16, "patch_size": 4, "in_chans": 3, "embed_dim": 12, "num_heads": 3, "num_classes": 5}
    config = deit_example({**square, **fields}) if model is deit else vit_example({**square, **fields})
    params = model.init(config, np.random.default_rng(0))
    shaken = np.random.default_rng(1)
    return config, {k: a + shaken.normal(size=a.shape).astype("f4") * 0.3 for k, a in tree.flatten(params).items()}


def written(tmp_path, found, name="model"):
    safetensors.write(tmp_path / name, found)
    return tmp_path / name


def logits(found, config):
    images = np.random.default_rng(2).standard_normal((2, config.in_chans, *config.image)).astype(np.float32)
    return found.model.predict(found.params, images, found.config)


def assumed(report):
    return {a.field: a.value for a in report.assumed}


# What is inferred


@pytest.mark.parametrize("what", VIT_CHOICES)
def test_our_own_files(tmp_path, what):
    config = vit_example(VIT_CHOICES[what])
    params = vit.init(config, np.random.default_rng(0))
    own.save(tmp_path / "a", config, params, {"class_names": ["x", "y", "z"]})
    found = load(tmp_path / "a")
    assert found.config == config
    assert found.extra["class_names"] == ["x", "y", "z"]
    assert found.report.layout == "numpy_vit"
    assert not found.report.assumed
    assert not found.report.unexpected
    flat = tree.flatten(found.params)
    assert all((flat[key] == leaf).all() for key, leaf in tree.flatten(params).items())


def test_a_stranger_s_file_and_what_is_assumed_of_it(tmp_path):
    _, stored = tensors()
    found = load(written(tmp_path, stored), num_heads=3)
    assert found.model is vit
    assert (found.config.depth, found.config.embed_dim, found.config.num_classes) == (2, 12, 5)
    assert found.config.image == (16, 16)
    assert assumed(found.report) == {
        "norm_eps": 1e-6, "act": "gelu", "global_pool": "token", "preprocessing": "timm"
    }  # fmt: skip
    assert found.report.overridden == (("num_heads", 3),)
    text, plain = str(found.report), json.loads(json.dumps(found.report.to_json()))
    assert "ASSUMED norm_eps 1e-06" in text
    assert plain["inferred"]["hidden_dim"] == 10
    assert {a["field"] for a in plain["assumed"]} == set(assumed(found.report))


def test_parameters_are_writable_copies_of_the_dtype_asked_for(tmp_path):
    _, stored = tensors()
    half = {key: array.astype(np.float16) for key, array in stored.items()}
    for dtype in (np.float32, np.float64):
        found = load(written(tmp_path, half), dtype, num_heads=3)
        for key, leaf in tree.flatten(found.params).items():
            assert leaf.dtype == dtype
            assert leaf.flags.writeable
            assert leaf.flags.owndata
            np.testing.assert_array_equal(leaf, half[key].astype(dtype))


def test_two_heads_make_it_a_deit(tmp_path):
    _, stored = tensors(deit)
    found = load(written(tmp_path, stored), num_heads=3)
    assert found.model is deit
    assert isinstance(found.config, deit.Config)
    assert logits(found, found.config).shape == (2, 5)


@pytest.mark.parametrize(
    ("dim", "hidden", "heads"), [(64, 128, 1), (192, 768, 3), (1280, 8, 16), (1152, 8, 16), (1664, 8, 16)]
)
def test_heads_of_published_widths(tmp_path, dim, hidden, heads):
    _, stored = tensors(embed_dim=dim, hidden_dim=hidden, num_heads=1, depth=1)
    assert load(written(tmp_path, stored)).config.num_heads == heads


def test_heads_follow_from_a_query_norm(tmp_path):
    _, stored = tensors(qk_norm=True, num_heads=4)
    assert load(written(tmp_path, stored)).config.num_heads == 4


# Wrappers


@pytest.mark.parametrize(
    ("prefix", "unwrapped"),
    [
        ("model/", ["model/"]),
        ("state_dict/module.", ["state_dict/", "module."]),
        ("_orig_mod.module.", ["_orig_mod.", "module."]),
        ("state_dict/model.backbone.", ["state_dict/", "model.", "backbone."]),
        ("whatever/", ["whatever/"]),
        ("visual.trunk.", ["visual.trunk."]),
    ],
)
def test_containers_and_prefixes(tmp_path, prefix, unwrapped):
    config, stored = tensors()
    found = load(written(tmp_path, {prefix + key: array for key, array in stored.items()}), num_heads=3)
    assert set(found.report.unwrapped) == set(unwrapped)
    plain = load(written(tmp_path, stored, "plain"), num_heads=3)
    np.testing.assert_array_equal(logits(found, config), logits(plain, config))


def test_compiled_parts_within_a_key(tmp_path):
    _, stored = tensors()
    renamed = {key.replace("blocks.1.", "blocks.1._orig_mod."): array for key, array in stored.items()}
    assert load(written(tmp_path, renamed), num_heads=3).config.depth == 2


def test_averaged_weights_and_the_teacher_come_first_and_the_rest_is_named(tmp_path):
    _, stored = tensors()
    for first, second, inner in (("state_dict_ema", "state_dict", ""), ("teacher", "student", "backbone.")):
        both = {f"{first}/{inner}{key}": array for key, array in stored.items()}
        both |= {f"{second}/{inner}{key}": array * 2 for key, array in stored.items()}
        found = load(written(tmp_path, both), num_heads=3)
        np.testing.assert_array_equal(found.params["head"]["weight"], stored["head.weight"])
        assert f"{second}/{inner}head.weight" in found.report.ignored
    assert found.report.family == "dino"


def test_ignored_and_unexpected_tensors_are_named(tmp_path):
    _, stored = tensors()
    more = {"mask_token": np.ones((1, 1, 12), "f4"), "extra.weight": np.ones(3, "f4"), "n_averaged": np.ones((), "i8")}
    found = load(written(tmp_path, {**stored, **more}), num_heads=3)
    assert found.report.unexpected == ("extra.weight",)
    assert set(found.report.ignored) == {"mask_token", "n_averaged"}


# What is wrong


@pytest.mark.parametrize("heads", [5, 7])
def test_heads_that_do_not_divide_the_width_are_refused(tmp_path, heads):
    _, stored = tensors()
    with pytest.raises(CheckpointError, match=f"num_heads {heads} does not divide the width 12"):
        load(written(tmp_path, stored), num_heads=heads)


def test_heads_that_nothing_tells_are_asked_for(tmp_path):
    _, stored = tensors()
    with pytest.raises(CheckpointError, match="give num_heads"):
        load(written(tmp_path, stored))


def test_missing_and_misshaped_weights_are_refused_or_drawn(tmp_path):
    _, stored = tensors()
    del stored["blocks.1.norm2.bias"]
    stored["blocks.0.mlp.fc1.bias"] = np.ones(3, "f4")
    path = written(tmp_path, stored)
    with pytest.raises(CheckpointError, match=r"norm2.bias is missing.*fc1.bias is \(3,\) instead of \(10,\)"):
        load(path, num_heads=3)
    found = load(path, num_heads=3, fill=np.random.default_rng(0))
    assert found.report.missing == ("blocks.1.norm2.bias",)
    assert found.report.misshaped == ("blocks.0.mlp.fc1.bias",)
    assert not found.params["blocks"][1]["norm2"]["bias"].any()


def test_another_head_for_fine_tuning(tmp_path):
    _, stored = tensors()
    path = written(tmp_path, stored)
    with pytest.raises(CheckpointError, match=r"head.weight is \(5, 12\) instead of \(9, 12\)"):
        load(path, num_heads=3, num_classes=9)
    found = load(path, num_heads=3, num_classes=9, fill=np.random.default_rng(0))
    assert found.params["head"]["weight"].shape == (9, 12)
    assert found.report.misshaped == ("head.weight", "head.bias")


def test_a_missing_block_is_named(tmp_path):
    _, stored = tensors(depth=3)
    kept = {key: array for key, array in stored.items() if not key.startswith("blocks.1.")}
    with pytest.raises(CheckpointError, match="blocks 1 of 3 are missing"):
        load(written(tmp_path, kept), num_heads=3)


def test_unknown_names_and_fields_are_refused(tmp_path):
    with pytest.raises(CheckpointError, match="no known layout has keys such as a, b: give a map"):
        load(written(tmp_path, {"a": np.ones(3, "f4"), "b": np.ones(2, "f4")}))
    with pytest.raises(ValueError, match="heads: no field of Config"):
        load(tmp_path / "model", heads=3)
    with pytest.raises(ValueError, match="resizing 'cubic' is unknown"):
        load(tmp_path / "model", resizing="cubic")
    with pytest.raises(CheckpointError, match="cannot be read"):
        load(tmp_path / "none")


def test_timm_s_blocks_that_are_not_built_are_refused(tmp_path):
    _, stored = tensors()
    stored["blocks.0.attn.norm.weight"] = np.ones(12, "f4")
    with pytest.raises(CheckpointError, match="scale_attn_norm"):
        load(written(tmp_path, stored), num_heads=3)


def test_suspicious_numbers_are_reported(tmp_path):
    _, stored = tensors()
    stored["head.weight"][:] = 0
    stored["norm.bias"][:] = np.nan
    stored["blocks.0.mlp.fc1.weight"][:] = 0.5
    text = "; ".join(load(written(tmp_path, stored), num_heads=3).report.warnings)
    assert "head.weight is all zeros" in text
    assert "norm.bias is all NaN" in text
    assert "blocks.0.mlp.fc1.weight is constant" in text
    stored["head.weight"][:] = stored["head.weight"][0] + 1
    assert "equal rows" in "; ".join(load(written(tmp_path, stored), num_heads=3).report.warnings)


# Overrides, grids and sizes


def test_overrides_win_over_assumptions(tmp_path):
    _, stored = tensors()
    found = load(written(tmp_path, stored), num_heads=6, norm_eps=1e-3, act="quick_gelu", global_pool="avg")
    assert (found.config.num_heads, found.config.norm_eps, found.config.act) == (6, 1e-3, "quick_gelu")
    assert (found.config.global_pool, found.config.norm_after_pool) == ("avg", False)
    assert not {"norm_eps", "act", "global_pool", "num_heads"} & assumed(found.report).keys()


def test_another_image_size_resizes_positions_and_says_so(tmp_path):
    _, stored = tensors()
    path = written(tmp_path, stored)
    found = load(path, num_heads=3, image_size=(24, 20))
    assert found.params["pos_embed"].shape == (1, 1 + 6 * 5, 12)
    assert "'timm'" in found.report.resized[0]
    other = load(path, num_heads=3, image_size=(24, 20), resizing="torchvision")
    assert np.abs(found.params["pos_embed"] - other.params["pos_embed"]).max() > 1e-2
    np.testing.assert_array_equal(other.params["pos_embed"][0, 0], stored["pos_embed"][0, 0])
    same = load(path, num_heads=3, image_size=16)
    np.testing.assert_array_equal(same.params["pos_embed"], stored["pos_embed"])
    assert not same.report.resized


def test_another_patch_size_resamples_the_projection(tmp_path):
    _, stored = tensors()
    found = load(written(tmp_path, stored), num_heads=3, patch_size=8, image_size=32)
    assert found.params["patch_embed"]["proj"]["weight"].shape == (12, 3, 8, 8)
    assert "FlexiViT" in found.report.resized[0]
    assert len(found.report.resized) == 1


def test_a_grid_that_is_no_square_has_to_be_given(tmp_path):
    _, stored = tensors(image_size=(8, 24))
    path = written(tmp_path, stored)
    with pytest.raises(CheckpointError, match=r"13 position rows .* give grid"):
        load(path, num_heads=3)
    assert load(path, num_heads=3, grid=(2, 6)).config.image == (8, 24)


def test_rows_that_fit_with_and_without_prefix_rows(tmp_path):
    _, stored = tensors(image_size=12, reg_tokens=4)  # 5 + 9 rows
    stored["reg_token"] = np.ones((1, 4, 12), "f4")
    stored["pos_embed"] = np.random.default_rng(0).normal(size=(1, 9, 12)).astype("f4")  # 9 - 5 = 4 is a square too
    path = written(tmp_path, stored)
    with pytest.raises(CheckpointError, match="give no_embed_class"):
        load(path, num_heads=3)
    assert load(path, num_heads=3, no_embed_class=True).config.grid == (3, 3)
    with pytest.warns(UserWarning, match="only 4 tokens"):
        assert load(path, num_heads=3, no_embed_class=False).config.grid == (2, 2)


# What stands beside the tensors


def test_config_json_of_transformers(tmp_path):
    _, stored = tensors()
    about = {"model_type": "vit", "num_attention_heads": 6, "layer_norm_eps": 1e-4, "hidden_act": "gelu_new"}
    (tmp_path / "config.json").write_text(json.dumps({**about, "image_size": 16}))
    written(tmp_path, stored, "model.safetensors")
    found = load(tmp_path)
    assert (found.config.num_heads, found.config.norm_eps, found.config.act) == (6, 1e-4, "gelu_tanh")
    assert {by for _, _, by in found.report.stated} == {"config.json"}
    assert load(tmp_path, act="gelu").config.act == "gelu"


def test_config_json_of_timm_and_of_others(tmp_path):
    _, stored = tensors()
    path = written(tmp_path, stored)
    (tmp_path / "config.json").write_text(json.dumps({"architecture": "vit_base_patch32_clip_quickgelu_224"}))
    found = load(path, num_heads=3)
    assert (found.config.norm_eps, found.config.act) == (1e-5, "quick_gelu")
    for text in ("{", "[]", '{"epochs": 3}'):
        (tmp_path / "config.json").write_text(text)
        assert load(path, num_heads=3).config.norm_eps == 1e-6


# Maps


MAP = """
# a naming that only its author knows
stem.w                  -> patch_embed.proj.weight channel_last
stem.b                  -> patch_embed.proj.bias
start                   -> cls_token token
places                  -> pos_embed batched
l{i}.a.*                -> blocks.{i}.norm1.*
l{i}.q.* + l{i}.k.* + l{i}.v.* -> blocks.{i}.attn.qkv.*
l{i}.o.*                -> blocks.{i}.attn.proj.*
l{i}.b.*                -> blocks.{i}.norm2.*
l{i}.up.*               -> blocks.{i}.mlp.fc1.*
l{i}.down.*             -> blocks.{i}.mlp.fc2.*
last.*                  -> norm.*
answer                  -> head.weight transpose
answer_bias             -> head.bias
"""


def test_a_map_of_names(tmp_path):
    from numpy_vit.checkpoints import maps

    config, stored = tensors()
    theirs = {
        "stem.w": stored["patch_embed.proj.weight"].transpose(0, 2, 3, 1).reshape(12, -1),
        "stem.b": stored["patch_embed.proj.bias"], "start": stored["cls_token"][0, 0], "places": stored["pos_embed"][0],
        "answer": stored["head.weight"].T, "answer_bias": stored["head.bias"],
    }  # fmt: skip
    names = {"norm1": "a", "norm2": "b", "attn.proj": "o", "mlp.fc1": "up", "mlp.fc2": "down"}
    for part in ("weight", "bias"):
        theirs[f"last.{part}"] = stored[f"norm.{part}"]
        for i in range(2):
            theirs |= {f"l{i}.{b}.{part}": stored[f"blocks.{i}.{a}.{part}"] for a, b in names.items()}
            thirds = np.split(stored[f"blocks.{i}.attn.qkv.{part}"], 3)
            theirs |= {f"l{i}.{name}.{part}": third for name, third in zip("qkv", thirds, strict=True)}
    (tmp_path / "map").write_text(MAP)
    found = load(written(tmp_path, theirs), mapping=maps.read(tmp_path / "map"), num_heads=3, norm_eps=1e-6)
    plain = load(written(tmp_path, stored, "plain"), num_heads=3)
    np.testing.assert_array_equal(logits(found, config), logits(plain, config))
    packed = found.layout.pack(tree.flatten(found.params), found.config)
    assert all((packed[key] == array).all() for key, array in theirs.items())
    assert {"in_chans", "patch_size"} <= assumed(found.report).keys()
    inside = load(written(tmp_path, {f"model/{k}": a for k, a in theirs.items()}), mapping=maps.read(tmp_path / "map"),
                  num_heads=3)  # fmt: skip
    assert inside.report.unwrapped == ("model/",)


@pytest.mark.parametrize(
    ("line", "message"), [("a b", "line 1: 'a b' is not"), ("a -> ", "is not"), ("a -> b rotate", "'rotate' for b")]
)
def test_maps_that_are_wrong(tmp_path, line, message):
    from numpy_vit.checkpoints import maps

    (tmp_path / "map").write_text(line)
    path = written(tmp_path, {"a": np.ones(3, "f4")})
    with pytest.raises(CheckpointError, match=message):
        load(path, mapping=maps.read(tmp_path / "map"))
