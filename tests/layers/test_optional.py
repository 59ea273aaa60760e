"""A layer that is absent is the identity, forward and backward; names below a module carry its name."""

from __future__ import annotations

import numpy as np
import pytest

from numpy_vit.layers import layer_scale, layernorm, optional, recording


@pytest.mark.parametrize("params", [None, {}])
def test_an_absent_layer_hands_on_the_very_array(params):
    x, dy = np.ones((2, 3)), np.full((2, 3), 2.0)
    y, cache = optional.forward(layer_scale, params, x)
    assert y is x
    dx, grads = optional.backward(dy, cache)
    assert dx is dy
    assert grads == {}


def test_a_present_layer_is_the_layer():
    x, dy = np.random.default_rng(0).standard_normal((2, 2, 3, 4))
    params = {"weight": np.arange(4.0), "bias": np.ones(4)}
    y, cache = optional.forward(layernorm, params, x, 0.5)
    expected, inner = layernorm.forward(params, x, 0.5)
    np.testing.assert_array_equal(y, expected)
    dx, grads = optional.backward(dy, cache)
    expected, expected_grads = layernorm.backward(dy, inner)
    np.testing.assert_array_equal(dx, expected)
    np.testing.assert_array_equal(grads["weight"], expected_grads["weight"])


def test_names_below_a_module():
    record = {}
    note = recording.below(recording.below(recording.into(record), "blocks.3"), "attn")
    note("qkv", 1)
    note("", 2)
    assert record == {"blocks.3.attn.qkv": 1, "blocks.3.attn": 2}
    assert recording.below(recording.into(None), "blocks.3") is recording.ignore
