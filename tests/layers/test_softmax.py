"""Softmax against exponentials one by one, and where exponentials overflow."""

from __future__ import annotations

import math

import numpy as np
import pytest

from numpy_vit.layers import softmax


def by_loops(row):
    largest = max(row)
    exponentials = [math.exp(value - largest) for value in row]
    return [value / math.fsum(exponentials) for value in exponentials]


@pytest.mark.parametrize("shape", [(4,), (3, 4), (3, 4, 5), (2, 3, 4, 4), (2, 5, 3, 2)])
def test_the_last_axis_whatever_the_rank(shape):
    # Rows of very different sizes: a maximum over any other axis would under- or overflow.
    rng = np.random.default_rng(0)
    x = 10 * rng.standard_normal(shape) + 1000 * rng.standard_normal((*shape[:-1], 1))
    y, _ = softmax.forward(x)
    for place in np.ndindex(shape[:-1]):
        np.testing.assert_allclose(y[place], by_loops(x[place].tolist()), rtol=1e-12, atol=0)
    np.testing.assert_allclose(y.sum(axis=-1), 1, rtol=1e-15)


def test_large_logits_by_hand():
    y, _ = softmax.forward(np.array([[1e4, 1e4 - 1], [-1e4, 1e4], [-1e4, -1e4]]))
    e = math.exp(-1)
    np.testing.assert_allclose(y, [[1 / (1 + e), e / (1 + e)], [0, 1], [0.5, 0.5]], rtol=1e-15)


def test_a_masked_entry_gets_nothing():
    y, cache = softmax.forward(np.array([[-np.inf, 2.0, 2.0]]))
    assert y.tolist() == [[0.0, 0.5, 0.5]]
    assert softmax.backward(np.array([[7.0, 1.0, 3.0]]), cache).tolist() == [[0.0, -0.5, 0.5]]


def test_a_shift_changes_nothing_and_dx_sums_to_zero():
    rng = np.random.default_rng(1)
    x = rng.standard_normal((3, 4, 5))
    y, cache = softmax.forward(x)
    np.testing.assert_allclose(softmax.forward(x + 100.0)[0], y, rtol=1e-12)
    dx = softmax.backward(rng.standard_normal(x.shape), cache)
    np.testing.assert_allclose(dx.sum(axis=-1), 0, atol=1e-15)
    np.testing.assert_allclose(softmax.backward(np.ones_like(x), cache), 0, atol=1e-15)


def test_backward_is_the_jacobian_of_every_row_at_large_logits():
    rng = np.random.default_rng(2)
    x = rng.standard_normal((2, 3, 4)) + np.array([1e4, -1e4])[:, None, None]
    dy = rng.standard_normal(x.shape)
    _, cache = softmax.forward(x)
    dx = softmax.backward(dy, cache)
    for place in np.ndindex(2, 3):
        p = by_loops(x[place].tolist())
        for j in range(4):
            expected = math.fsum(dy[place][i] * p[i] * ((i == j) - p[j]) for i in range(4))
            assert dx[place][j] == pytest.approx(expected, rel=1e-9, abs=1e-15)
