"""Each fault that is put into a healthy checkpoint is found and named; a healthy one is left in peace."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from numpy_vit import tree
from numpy_vit.checkpoints import safetensors
from numpy_vit.checks.findings import Finding, collected
from numpy_vit.checks.health import health
from numpy_vit.models import vit

Tensors = dict[str, Any]
CONFIG = vit.Config(32, 8, num_classes=7, embed_dim=24, depth=3, num_heads=3, hidden_dim=40)


def healthy(config: vit.Config = CONFIG) -> Tensors:
    """A model whose every tensor has values as if it had been trained."""
    rng = np.random.default_rng(0)
    made = tree.flatten(vit.init(config, rng))
    return {name: leaf + rng.normal(0, 0.1, leaf.shape).astype(np.float32) for name, leaf in made.items()}


def put(name: str, change: Callable[[Any], Any]) -> Callable[[Tensors], None]:
    def edit(tensors: Tensors) -> None:
        tensors[name] = np.ascontiguousarray(change(tensors[name]))

    return edit


def rename(before: str, after: str) -> Callable[[Tensors], None]:
    def edit(tensors: Tensors) -> None:
        for name in [name for name in tensors if before in name]:
            tensors[name.replace(before, after)] = tensors.pop(name)

    return edit


def both(*edits: Callable[[Tensors], None]) -> Callable[[Tensors], None]:
    def edit(tensors: Tensors) -> None:
        for one in edits:
            one(tensors)

    return edit


def exchange(a: str, b: str) -> Callable[[Tensors], None]:
    def edit(tensors: Tensors) -> None:
        tensors[a], tensors[b] = tensors[b], tensors[a]

    return edit


def with_nan(x: Any) -> Any:
    x = x.copy()
    x.flat[[2, 5]] = np.nan, np.inf
    return x


QKV = "blocks.1.attn.qkv.weight"
# the fault: (edit, level, the tensor that is named, words that explain it)
FAULTS: dict[str, tuple[Callable[[Tensors], None], str, str, str]] = {
    "nan": (put("head.weight", with_nan), "wrong", "head.weight", "1 NaN and 1 infinite of 168 values"),
    "overflow": (put("norm.weight", lambda x: x * np.inf), "wrong", "norm.weight", "half precision overflowed"),
    "huge": (put(QKV, lambda x: x * 1e6), "suspicious", QKV, "no trained weight is that large"),
    "zero head": (put("head.weight", np.zeros_like), "suspicious", "head.weight", "every class is equally likely"),
    "constant": (put(QKV, np.ones_like), "wrong", QKV, "never initialised"),
    "zeros": (put("pos_embed", np.zeros_like), "wrong", "pos_embed", "never filled"),
    "norm of zeros": (put("norm.weight", np.zeros_like), "wrong", "norm.weight", "nothing of the input passes"),
    "norm exchanged": (
        exchange("blocks.2.norm1.weight", "blocks.2.norm1.bias"), "wrong", "blocks.2.norm1.weight", "exchanged",
    ),
    "norm around zero": (put("norm.weight", lambda x: x - x.mean()), "suspicious", "norm.weight", "weight - 1"),
    "norm not loaded": (
        both(put("norm.weight", np.ones_like), put("norm.bias", np.zeros_like)), "suspicious", "norm.weight",
        "as before training",
    ),
    "tied": (
        lambda t: t.update({"blocks.2.mlp.fc1.weight": t["blocks.0.mlp.fc1.weight"].copy()}), "suspicious",
        "blocks.2.mlp.fc1.weight", "same values as blocks.0.mlp.fc1.weight",
    ),
    "q is k": (put(QKV, lambda x: np.concatenate([x[:24], x[:24], x[48:]])), "wrong", QKV, "two of its thirds"),
    "precisions": (put(QKV, lambda x: x.astype(np.float16)), "note", "", "1 of float16 tensors"),
    "quantised": (put(QKV, lambda x: (x * 9).astype(np.int8)), "note", "", f"not floats: {QKV} (int8)"),
    "transposed qkv": (put(QKV, np.transpose), "wrong", QKV, "transposed: (24, 72); PyTorch's linear weights are"),
    "only q": (put(QKV, lambda x: x[:24]), "wrong", QKV, "only one of q, k and v"),
    "q and k": (put(QKV, lambda x: x[:48]), "wrong", QKV, "only two of q, k and v"),
    "qkv of another width": (put(QKV, lambda x: x[:60]), "wrong", QKV, "need 3 x 24 = 72 rows, it has 60"),
    "qkv bias": (
        put("blocks.1.attn.qkv.bias", lambda x: x[:24]), "wrong", "blocks.1.attn.qkv.bias", "(24,) instead of (72,)",
    ),
    "separate q k v": (rename("attn.qkv", "attn.q_proj"), "wrong", "blocks.0.attn.q_proj.weight", "stack their rows"),
    "transposed fc1": (
        put("blocks.0.mlp.fc1.weight", np.transpose), "wrong", "blocks.0.mlp.fc1.weight", "transposed: (24, 40)",
    ),
    "transposed fc2": (
        put("blocks.0.mlp.fc2.weight", np.transpose), "wrong", "blocks.0.mlp.fc2.weight", "transposed: (40, 24)",
    ),
    "transposed head": (put("head.weight", np.transpose), "wrong", "head.weight", "transposed: (24, 7)"),
    "head of another width": (put("head.weight", lambda x: x[:, :20]), "wrong", "head.weight", "takes 20 inputs"),
    "head bias": (put("head.bias", lambda x: x[:5]), "wrong", "head.bias", "its weight has 7 rows"),
    "patch flattened": (
        put("patch_embed.proj.weight", lambda x: x.reshape(24, -1)), "wrong", "patch_embed.proj.weight",
        "here (24, 3, 8, 8) if its columns count (channel, row, column)",
    ),
    "patch flattened and transposed": (
        put("patch_embed.proj.weight", lambda x: x.reshape(24, -1).T), "wrong", "patch_embed.proj.weight",
        "transpose it, then reshape",
    ),
    "patch as in Flax": (
        put("patch_embed.proj.weight", lambda x: x.transpose(2, 3, 1, 0)), "wrong", "patch_embed.proj.weight",
        "transpose by (3, 2, 0, 1)",
    ),
    "patch with channels last": (
        put("patch_embed.proj.weight", lambda x: x.transpose(0, 2, 3, 1)), "wrong", "patch_embed.proj.weight",
        "transpose by (0, 3, 1, 2)",
    ),
    "patch missing": (
        rename("patch_embed.proj.weight", "patch_embed.projection"), "wrong", "patch_embed.proj.weight", "missing",
    ),
    "positions without the class token": (
        put("pos_embed", lambda x: x[:, 1:]), "suspicious", "pos_embed", "without rows for the prefix (1 cls_token)",
    ),
    "positions with a distillation token": (
        put("pos_embed", lambda x: np.concatenate([x, x[:, :1] + 1], 1)), "suspicious", "pos_embed",
        "as 18 = 4x4 + 2, 1 prefix tokens are missing",
    ),
    "positions of no square": (
        put("pos_embed", lambda x: x[:, :13]), "suspicious", "pos_embed",
        "the images were not square (give --image-size)",
    ),
    "positions without a batch axis": (put("pos_embed", lambda x: x[0]), "wrong", "pos_embed", "lacks the batch axis"),
    "positions transposed": (
        put("pos_embed", lambda x: x.transpose(0, 2, 1)), "wrong", "pos_embed", "instead of (1, rows, 24): transposed",
    ),
    "no positions": (rename("pos_embed", "positions"), "note", "", "no position table"),
    "class token without axes": (put("cls_token", lambda x: x[0, 0]), "wrong", "cls_token", "axes are missing"),
    "class token of another width": (put("cls_token", lambda x: x[..., :20]), "wrong", "cls_token", "ends with 20"),
    "one norm of another width": (put("norm.weight", lambda x: x[:20]), "wrong", "norm.weight", "instead of (24,)"),
    "a block is missing": (rename("blocks.1.", "blocks.5."), "wrong", "", "blocks up to 5, but none of number 1, 3, 4"),
    "a tensor is missing": (
        lambda t: t.pop("blocks.2.norm2.bias"), "wrong", "blocks.2.norm2.bias", "missing, while 2 of 3 blocks have it",
    ),
}  # fmt: skip


def test_a_healthy_model_has_no_findings() -> None:
    assert health(healthy(), 3, (32, 32)) == []
    assert health(healthy()) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"class_token": False, "global_pool": "avg"},
        {"global_pool": "map", "reg_tokens": 2},
        {"pre_logits": 11, "qk_norm": True, "init_values": 0.1},
        {"head_dim": 5},
        {"patch_pre_norm": True, "global_pool": "token_avg"},
        {"swiglu": True, "norm_pre": True, "patch_norm": True, "qkv_bias": False},
    ],
    ids=str,
)
def test_other_healthy_models_have_no_findings(changes: dict[str, Any]) -> None:
    config = vit.Config(32, 8, num_classes=7, embed_dim=24, depth=2, num_heads=3, hidden_dim=40, **changes)
    assert health(healthy(config), 3, (32, 32)) == []


@pytest.mark.parametrize("prefix", ["", "model/module."])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named(fault: str, prefix: str) -> None:
    edit, level, tensor, words = FAULTS[fault]
    tensors = healthy()
    edit(tensors)
    found = health({prefix + name: value for name, value in tensors.items()}, 3)
    expected = prefix + tensor if tensor else ""
    right = [one for one in found if one.level == level and words in one.text.replace(prefix + "blocks", "blocks")]
    assert any(one.tensor == expected for one in right), "\n".join(map(str, found))
    worse = [one for one in found if one.tensor != expected and one.level == "wrong"]
    assert fault == "separate q k v" or not worse, "nothing else is blamed"


@pytest.mark.parametrize("shape", [(), (0,), (1,), (24,), (0, 24), (1, 1, 1, 1, 1)], ids=str)
def test_no_shape_is_too_strange(shape: tuple[int, ...]) -> None:
    for name in healthy():
        tensors = {**healthy(), name: np.full(shape, 0.5, np.float32), "blocks.99999999999.x": np.ones(3)}
        assert health(tensors, 3, (32, 32))
        health({"patch_embed.x": np.ones(3), "blocks.x": np.ones(3), "norm.weight": np.ones(shape)})


def test_heads_and_image_sizes() -> None:
    (found,) = health(healthy(), num_heads=5)
    assert str(found) == "wrong: 5 heads do not divide the width 24: 4 would"
    (found,) = health(healthy(), 3, (64, 32))
    assert found.tensor == "pos_embed"
    assert "17 rows (4x4 + 1), but images of 64x32 in patches of 8x8 need 8x4 + 1 = 33" in found.text
    (found,) = health(healthy(), 3, (60, 32))
    assert "are no whole grid" in found.text


def test_an_untrained_model_is_told_once() -> None:
    fresh = tree.flatten(vit.init(CONFIG, np.random.default_rng(0)))
    assert [one.text for one in health(fresh)] == [
        "all 7 norms have weight 1 and bias 0: untrained, or loaded without its norms"
    ]


def test_what_many_tensors_share_is_said_once() -> None:
    found = collected([Finding("note", str(i), "odd") for i in range(9)] + [Finding("wrong", "a", "bad")])
    assert [str(one) for one in found] == ["wrong: a: bad", "note: 0 and 8 others: odd"]


def test_other_layouts_are_judged_by_their_values_only() -> None:
    rng = np.random.default_rng(0)
    tensors = {"vit/encoder.layer.0.output.dense.weight": rng.normal(size=(3, 4)), "vit/layernorm.weight": np.zeros(4)}
    assert health(tensors) == []
    tensors["vit/layernorm.bias"] = np.ones(4)
    assert [one.level for one in health(tensors)] == ["wrong"]


@pytest.mark.skipif(not os.environ.get("NUMPY_VIT_REAL"), reason="NUMPY_VIT_REAL is not set")
def test_a_real_model_is_healthy() -> None:
    path = Path(os.environ["NUMPY_VIT_REAL"]) / "vit_tiny_patch16_224" / "model.safetensors"
    assert health(safetensors.read(path)[0], 3, (224, 224)) == []
