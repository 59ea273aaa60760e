"""Two checkpoints tensor by tensor."""

from __future__ import annotations

import numpy as np
import pytest

from numpy_vit import tree
from numpy_vit.checks.opening import port_of_params
from numpy_vit.checks.precision import rounded
from numpy_vit.checks.weights import compare_weights
from numpy_vit.models import vit

CONFIG = vit.Config(image_size=12, patch_size=4, num_classes=7, embed_dim=24, depth=2, num_heads=3, hidden_dim=40)


@pytest.fixture
def port():
    rng = np.random.default_rng(0)
    return port_of_params(
        tree.map(lambda leaf: rng.standard_normal(leaf.shape), vit.init(CONFIG, rng, np.float64)), CONFIG
    )


def test_equal(port):
    result = compare_weights(port, dict(port.params))
    assert result.same
    assert str(result).startswith("SAME: 32 tensors are equal bit for bit")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_rounded_copy_is_the_same(port, dtype):
    def cut(leaf):
        return leaf.astype(np.float32) if dtype == "float32" else rounded(leaf, dtype)

    result = compare_weights(port, {key: cut(leaf) for key, leaf in port.params.items()})
    assert (result.same, result.rounding) == (True, dtype)


def test_two_causes_one_after_the_other(port):
    other = dict(port.params)
    for key in other:
        if key.endswith("attn.proj.weight"):
            other[key] = other[key].T
    other["patch_embed.proj.weight"] = other["patch_embed.proj.weight"][:, ::-1]
    result = compare_weights(port, other)
    assert not result.same
    assert sorted(result.causes) == [
        "With attn.proj.weight transposed, blocks.0.attn.proj.weight and 1 more of the first checkpoint equal the "
        "second's.",
        "With the channels reversed, patch_embed.proj.weight of the first checkpoint equal the second's.",
    ]
    assert str(result).startswith("DIFFERENT: 3 of 32 tensors differ, the first is patch_embed.proj.weight")


def test_missing_and_other_shapes(port):
    other = {key: leaf for key, leaf in port.params.items() if key != "head.bias"}
    other["head.weight"] = other["head.weight"][:5]
    rows = {row.name: row for row in compare_weights(port, other).rows}
    assert rows["head.bias"].shapes == ((7,), None)
    assert not rows["head.weight"].same
    assert rows["head.weight"].max_abs == np.inf
    assert rows["norm.weight"].same
