"""Attention and the block for the leading tokens against the same for all tokens, of which only those are read."""

from __future__ import annotations

import numpy as np
import pytest

from numpy_vit import tree
from numpy_vit.layers import attention, block, mlp, readout_attention, readout_block, silu, swiglu

B, N, D, HEADS, HIDDEN = 4, 5, 6, 3, 7
reads = pytest.mark.parametrize("read", [1, 2, N])


def shaken(params, rng):
    return tree.map(lambda leaf: leaf + rng.standard_normal(leaf.shape), params)


def same(found, expected):
    """Equal keys, and arrays equal to 1e-13 of their largest entry."""
    found, expected = tree.flatten(found), tree.flatten(expected)
    assert found.keys() == expected.keys()
    for key, leaf in expected.items():
        assert found[key].shape == leaf.shape
        scale = max(np.abs(leaf).max(), 1.0)  # the key bias has a gradient of zero
        np.testing.assert_allclose(found[key], leaf, rtol=1e-13, atol=1e-13 * scale, err_msg=key)


def upstream(rng, read):
    """A gradient of the tokens that are read, and the same of all tokens, zero where nobody reads."""
    dy = rng.standard_normal((B, read, D))
    return dy, np.concatenate([dy, np.zeros((B, N - read, D))], axis=1)


@reads
@pytest.mark.parametrize("choices", [{}, {"qk_norm": True}, {"head_dim": 4}, {"qkv_bias": False, "qk_norm": True}])
def test_attention_of_the_leading_tokens(read, choices):
    rng = np.random.default_rng(0)
    params = shaken(attention.init(D, HEADS, rng, dtype=np.float64, **choices), rng)
    x, (dy, every_dy) = rng.standard_normal((B, N, D)), upstream(rng, read)
    whole, whole_cache = attention.forward(params, x, HEADS)
    y, cache = readout_attention.forward(params, x, HEADS, read)
    same(y, whole[:, :read])
    dx, _, grads = attention.backward(every_dy, whole_cache)
    same(readout_attention.backward(dy, cache), (dx, grads))


def test_heads_that_do_not_divide_the_width():
    params = attention.init(D, HEADS, np.random.default_rng(0))
    with pytest.raises(ValueError, match="4 heads do not divide the width 6"):
        readout_attention.forward(params, np.zeros((B, N, D), np.float32), 4)


BLOCKS = {
    "plain": {},
    "q and k norm": {"qk_norm": True},
    "wide heads, no biases": {"head_dim": 4, "qkv_bias": False},
    "layer scale": {"init_values": 0.5},
    "swiglu": {"ffn": swiglu},
    "everything": {"qk_norm": True, "head_dim": 4, "init_values": 0.5, "ffn": swiglu},
}


@reads
@pytest.mark.parametrize("drop_path", [0.0, 0.5])
@pytest.mark.parametrize("what", BLOCKS)
def test_the_block_of_the_leading_tokens(what, drop_path, read):
    """Drop path draws a number for each sample and branch: the same stream drops the same in both."""
    rng = np.random.default_rng(1)
    choices = dict(BLOCKS[what])
    ffn = choices.pop("ffn", mlp)
    act = {"act": silu} if ffn is swiglu else {}
    config = block.Config(HEADS, ffn=ffn, drop_path=drop_path, read=read, **act)
    params = shaken(block.init(D, HIDDEN, config, rng, dtype=np.float64, **choices), rng)
    x, (dy, every_dy) = rng.standard_normal((B, N, D)), upstream(rng, read)
    whole, whole_cache = block.forward(params, x, config, np.random.default_rng(2))
    y, cache = readout_block.forward(params, x, config, np.random.default_rng(2))
    if drop_path:
        assert (whole != block.forward(params, x, config)[0]).any()
    same(y, whole[:, :read])
    same(readout_block.backward(dy, cache), block.backward(every_dy, whole_cache))
