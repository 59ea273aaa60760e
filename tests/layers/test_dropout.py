"""Dropout and drop path: how much is dropped, what happens to the rest, and that evaluation drops nothing."""

from __future__ import annotations

import math

import numpy as np
import pytest

from numpy_vit.layers import drop_path, dropout

BOTH = pytest.mark.parametrize("layer", [dropout, drop_path])


def deviations(count, size, rate):
    """How many standard deviations a binomial count is from its mean."""
    return abs(count - rate * size) / math.sqrt(size * rate * (1 - rate))


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_dropout_drops_entries_at_the_rate_and_scales_the_rest(rate):
    x = np.random.default_rng(0).standard_normal((200, 10, 50)) + 10
    y, cache = dropout.forward(x, rate, np.random.default_rng(1))
    dropped = y == 0
    assert deviations(dropped.sum(), x.size, rate) < 5
    np.testing.assert_allclose(y[~dropped], x[~dropped] / (1 - rate), rtol=1e-14)
    dy = np.random.default_rng(2).standard_normal(x.shape)
    dx = dropout.backward(dy, cache)
    assert (dx[dropped] == 0).all()
    np.testing.assert_allclose(dx[~dropped], dy[~dropped] / (1 - rate), rtol=1e-14)
    # independent: neighbours are dropped together as often as chance says
    assert deviations((dropped[..., 1:] & dropped[..., :-1])[..., ::2].sum(), x.size // 2, rate * rate) < 5


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_drop_path_drops_whole_samples(rate):
    x = np.random.default_rng(0).standard_normal((20000, 2, 3)) + 10
    y, cache = drop_path.forward(x, rate, np.random.default_rng(1))
    dropped = (y == 0).all(axis=(1, 2))
    assert deviations(dropped.sum(), len(x), rate) < 5
    np.testing.assert_allclose(y[~dropped], x[~dropped] / (1 - rate), rtol=1e-14)
    dx = drop_path.backward(x, cache)
    np.testing.assert_array_equal(dx, y)  # linear and diagonal: its own transpose


@BOTH
def test_evaluation_and_rate_zero_change_nothing(layer):
    x, rng = np.random.default_rng(0).standard_normal((3, 4, 5)), np.random.default_rng(1)
    before = rng.bit_generator.state
    for y, cache in (layer.forward(x, 0.5, None), layer.forward(x, 0.0, rng)):
        np.testing.assert_array_equal(y, x)
        np.testing.assert_array_equal(layer.backward(2 * x, cache), 2 * x)
    assert rng.bit_generator.state == before  # rate zero draws nothing


@BOTH
def test_one_seed_drops_the_same_in_float32_and_float64(layer):
    x = np.ones((64, 7, 5))
    wide, _ = layer.forward(x, 0.3, np.random.default_rng(5))
    narrow, _ = layer.forward(x.astype(np.float32), 0.3, np.random.default_rng(5))
    assert narrow.dtype == np.float32
    np.testing.assert_array_equal(narrow == 0, wide == 0)
    other, _ = layer.forward(x, 0.3, np.random.default_rng(6))
    assert (other != wide).any()


@BOTH
@pytest.mark.parametrize("rate", [1.0, -0.1, 2.0, math.nan])
def test_rates_outside_the_range(layer, rate):
    for rng in (None, np.random.default_rng(0)):
        with pytest.raises(ValueError, match=r"lies in \[0, 1\), not"):
            layer.forward(np.ones((2, 3)), rate, rng)
