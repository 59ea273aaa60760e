"""SiLU and tanh against their formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest

from numpy_vit.layers import silu, tanh


def test_silu_is_its_formula():
    x = np.linspace(-30, 30, 2001)
    y, cache = silu.forward(x)
    slope = silu.backward(np.ones_like(x), cache)
    for entry, found, derivative in zip(x.tolist(), y, slope, strict=True):
        s = 1 / (1 + math.exp(-entry))
        assert found == pytest.approx(entry * s, abs=1e-14)
        assert derivative == pytest.approx(s + entry * s * (1 - s), abs=1e-14)


def test_silu_far_out():
    x = np.array([1e30, 1e3, -1e3, -1e30], np.float32)
    y, cache = silu.forward(x)
    np.testing.assert_array_equal(y, [np.float32(1e30), 1e3, 0, 0])
    np.testing.assert_array_equal(silu.backward(np.ones_like(x), cache), [1, 1, 0, 0])


def test_tanh_is_its_formula():
    x = np.array([-1e3, -2.0, -0.5, 0.0, 0.5, 2.0, 1e3])
    y, cache = tanh.forward(x)
    np.testing.assert_allclose(y, [math.tanh(entry) for entry in x.tolist()], rtol=1e-15)
    slopes = [1 / math.cosh(entry) ** 2 if abs(entry) < 300 else 0.0 for entry in x.tolist()]
    np.testing.assert_allclose(tanh.backward(3 * np.ones_like(x), cache), 3 * np.array(slopes), rtol=1e-14)
