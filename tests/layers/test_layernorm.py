"""Layer normalisation against its definition, summed exactly, and what it must not see."""

from __future__ import annotations

import math

import numpy as np
import pytest

from numpy_vit.layers import layernorm


def definition(row, weight, bias, eps):
    D = len(row)
    mean = math.fsum(row) / D
    variance = math.fsum((value - mean) ** 2 for value in row) / D  # over D, not D - 1
    return [w * (value - mean) / math.sqrt(variance + eps) + b for value, w, b in zip(row, weight, bias, strict=True)]


@pytest.mark.parametrize("eps", [1e-6, 1e-5, 0.1])
@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_forward_is_the_definition(eps, offset):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 3, 7)) * rng.uniform(0.1, 10, (2, 3, 1)) + offset
    params = {"weight": rng.standard_normal(7), "bias": rng.standard_normal(7)}
    y, _ = layernorm.forward(params, x, eps)
    for place in np.ndindex(2, 3):
        expected = definition(x[place].tolist(), params["weight"], params["bias"], eps)
        np.testing.assert_allclose(y[place], expected, rtol=1e-12, atol=1e-12)


def test_float32_far_from_zero():
    # E[x²] - E[x]² would be noise here: 1e6 squared has no room for a variance of 1 in float32
    x = (np.random.default_rng(1).standard_normal((4, 64)) + 1000).astype(np.float32)
    y, _ = layernorm.forward(layernorm.init(64), x)
    for row, found in zip(x.tolist(), y, strict=True):
        np.testing.assert_allclose(found, definition(row, [1.0] * 64, [0.0] * 64, 1e-6), rtol=0, atol=5e-4)


def test_eps_is_inside_the_root_and_added_to_the_variance():
    y, _ = layernorm.forward(layernorm.init(2, np.float64), np.array([[1.0, -1.0]]), eps=0.21)
    np.testing.assert_allclose(y, [[1 / 1.1, -1 / 1.1]], rtol=1e-15)
    y, _ = layernorm.forward(layernorm.init(2, np.float64), np.array([[5.0, 5.0]]))
    assert y.tolist() == [[0.0, 0.0]]  # a constant row has no direction


def test_the_default_eps_is_the_vits():
    y, _ = layernorm.forward(layernorm.init(2, np.float64), np.array([[1e-3, -1e-3]]))
    np.testing.assert_allclose(y, [[1 / math.sqrt(2), -1 / math.sqrt(2)]], rtol=1e-12)  # 1e-6 + 1e-6 below the root


def test_dx_has_no_part_along_one_and_none_along_xhat():
    rng = np.random.default_rng(2)
    x = rng.standard_normal((3, 4, 9))
    params = {"weight": rng.standard_normal(9), "bias": rng.standard_normal(9)}
    y, cache = layernorm.forward(params, x, eps=1e-14)
    dx, _ = layernorm.backward(rng.standard_normal(y.shape), cache)
    np.testing.assert_allclose(dx.sum(axis=-1), 0, atol=1e-13)
    np.testing.assert_allclose((dx * x).sum(axis=-1), 0, atol=1e-12)


def test_a_shift_changes_nothing_and_an_upstream_of_ones_gives_no_dx():
    x = np.random.default_rng(3).standard_normal((2, 3, 8))
    y, cache = layernorm.forward(layernorm.init(8, np.float64), x)
    np.testing.assert_allclose(layernorm.forward(layernorm.init(8, np.float64), x + 5.0)[0], y, atol=1e-13)
    dx, grads = layernorm.backward(np.ones_like(x), cache)  # the sum of a normalised row is 0 whatever x is
    np.testing.assert_allclose(dx, 0, atol=1e-14)
    np.testing.assert_array_equal(grads["bias"], np.full(8, 6.0))
    np.testing.assert_allclose(grads["weight"], y.sum(axis=(0, 1)), atol=1e-14)
