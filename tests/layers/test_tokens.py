"""Prefix tokens and positions: which token stands where, what is added to it, and the sums over the batch."""

from __future__ import annotations

import numpy as np
import pytest

from numpy_vit.layers import position_table, prefix_tokens


@pytest.fixture
def x():
    return np.random.default_rng(0).standard_normal((3, 4, 2))


def test_class_token_then_registers_then_patches(x):
    params = {"reg_token": np.array([[[3.0, 4.0], [5.0, 6.0]]]), "cls_token": np.array([[[1.0, 2.0]]]), "other": None}
    y, cache = prefix_tokens.forward(params, x)
    for sample, patches in zip(y, x, strict=True):
        assert sample.tolist() == [[1, 2], [3, 4], [5, 6], *patches.tolist()]
    dy = np.random.default_rng(1).standard_normal(y.shape)
    dx, grads = prefix_tokens.backward(dy, cache)
    np.testing.assert_array_equal(dx, dy[:, 3:])
    np.testing.assert_allclose(grads["cls_token"][0, 0], dy[0, 0] + dy[1, 0] + dy[2, 0], rtol=1e-14)
    np.testing.assert_allclose(grads["reg_token"][0], dy[0, 1:3] + dy[1, 1:3] + dy[2, 1:3], rtol=1e-14)
    assert grads.keys() == {"cls_token", "reg_token"}


def test_no_prefix(x):
    y, cache = prefix_tokens.forward({}, x)
    np.testing.assert_array_equal(y, x)
    dx, grads = prefix_tokens.backward(2 * x, cache)
    np.testing.assert_array_equal(dx, 2 * x)
    assert grads == {}


@pytest.mark.parametrize("rows", [4, 3, 1])
def test_row_i_of_the_table_is_added_to_token_i_from_the_end(x, rows):
    table = np.random.default_rng(2).standard_normal((1, rows, 2))
    y, cache = position_table.forward({"pos_embed": table}, x)
    for b, n in np.ndindex(3, 4):
        row = n - (4 - rows)
        np.testing.assert_array_equal(y[b, n], x[b, n] + table[0, row] if row >= 0 else x[b, n])
    dx, grads = position_table.backward(y, cache)
    np.testing.assert_array_equal(dx, y)
    np.testing.assert_allclose(grads["pos_embed"][0], y[0, -rows:] + y[1, -rows:] + y[2, -rows:], rtol=1e-14)


@pytest.mark.parametrize("shape", [(1, 5, 2), (1, 4, 3)])
def test_a_table_that_does_not_fit(x, shape):
    with pytest.raises(ValueError, match=rf"\(1, {shape[1]}, {shape[2]}\) does not fit tokens \(3, 4, 2\)"):
        position_table.forward({"pos_embed": np.zeros(shape)}, x)
