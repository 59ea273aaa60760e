"""The three forms of GELU against math.erfc and math.tanh, over the whole range of floating numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from numpy_vit.layers import gelu, gelu_tanh, quick_gelu

ROOT, TAU = math.sqrt(2), 2 * math.pi


def exact(x: float) -> tuple[float, float]:
    """Return x Φ(x) and Φ(x) + x φ(x); erfc keeps the tail's digits where 1 + erf would lose them."""
    cdf = 0.5 * math.erfc(-x / ROOT)
    return x * cdf, cdf + x * math.exp(-0.5 * x * x) / math.sqrt(TAU)


def value_and_slope(layer, x):
    y, cache = layer.forward(x)
    return y, layer.backward(np.ones_like(x), cache)


def test_float64_to_the_last_digits():
    x = np.concatenate([np.linspace(-40, 40, 20001), np.linspace(-1, 1, 20001), [0.0, -0.0, 1e-300, -1e-300]])
    y, slope = value_and_slope(gelu, x)
    value, derivative = np.array([exact(entry) for entry in x.tolist()]).T
    allowed = 1e-15 * np.maximum(1, np.abs(x))
    assert (np.abs(y - value) <= allowed).all()
    assert (np.abs(slope - derivative) <= allowed).all()


def test_float32():
    x = np.linspace(-8, 8, 400001).astype(np.float32)
    y, slope = value_and_slope(gelu, x)
    assert y.dtype == slope.dtype == np.float32
    value, derivative = np.array([exact(entry) for entry in x.tolist()]).T
    assert np.abs(y - value).max() <= 5e-7
    assert np.abs(slope - derivative).max() <= 2.6e-7


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_far_out_and_not_a_number(dtype):
    x = np.array([1e30, 50.0, -50.0, -1e30, np.nan], dtype)
    y, slope = value_and_slope(gelu, x)
    np.testing.assert_array_equal(y[:2], x[:2])
    np.testing.assert_allclose(y[2:4], 0, atol=1e-36)
    np.testing.assert_allclose(slope[:4], [1, 1, 0, 0], atol=1e-35)
    assert np.isnan(y[4]) and np.isnan(slope[4])
    with np.errstate(invalid="ignore"):  # ∞ · 0, as in PyTorch
        y, slope = value_and_slope(gelu, np.array([np.inf, -np.inf], dtype))
    np.testing.assert_array_equal(y, [np.inf, np.nan])
    np.testing.assert_array_equal(slope, [np.nan, np.nan])


def test_published_values():
    # gelu_tanh(1) and gelu(1), in every framework's documentation
    assert gelu.forward(np.array([1.0]))[0][0] == pytest.approx(0.841345, abs=5e-7)
    assert gelu_tanh.forward(np.array([1.0]))[0][0] == pytest.approx(0.841192, abs=5e-7)
    assert quick_gelu.forward(np.array([1.0]))[0][0] == pytest.approx(1 / (1 + math.exp(-1.702)), abs=1e-15)


@pytest.mark.parametrize(("layer", "largest", "where"), [(gelu_tanh, 4.73e-4, 2.70), (quick_gelu, 2.03e-2, 2.27)])
def test_how_far_the_approximations_are_from_the_exact_form(layer, largest, where):
    x = np.linspace(-8, 8, 16001)
    gap = np.abs(layer.forward(x)[0] - np.array([exact(entry)[0] for entry in x.tolist()]))
    assert gap.max() == pytest.approx(largest, rel=5e-3)
    assert abs(x[gap.argmax()]) == pytest.approx(where, abs=0.01)


def test_the_tanh_form_is_its_formula():
    x = np.linspace(-10, 10, 2001)
    y, slope = value_and_slope(gelu_tanh, x)
    for entry, found, derivative in zip(x.tolist(), y, slope, strict=True):
        u = math.sqrt(2 / math.pi) * (entry + 0.044715 * entry**3)
        du = math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * entry**2)
        assert found == pytest.approx(0.5 * entry * (1 + math.tanh(u)), abs=1e-14)
        expected = 0.5 * (1 + math.tanh(u)) + (0.5 * entry * du / math.cosh(u) ** 2 if abs(u) < 300 else 0)
        assert derivative == pytest.approx(expected, abs=1e-13)


def test_the_quick_form_is_its_formula():
    x = np.linspace(-20, 20, 2001)
    y, slope = value_and_slope(quick_gelu, x)
    for entry, found, derivative in zip(x.tolist(), y, slope, strict=True):
        s = 1 / (1 + math.exp(-1.702 * entry))
        assert found == pytest.approx(entry * s, abs=1e-14)
        assert derivative == pytest.approx(s + entry * 1.702 * s * (1 - s), abs=1e-14)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("layer", [gelu_tanh, quick_gelu])
def test_the_approximations_far_out(layer, dtype):
    x = np.array([1e30, 100.0, -100.0, -1e30], dtype)
    y, slope = value_and_slope(layer, x)
    np.testing.assert_array_equal(y[:2], x[:2])
    np.testing.assert_array_equal(y[2:], 0)
    np.testing.assert_array_equal(slope, [1, 1, 0, 0])


@pytest.mark.parametrize("layer", [gelu, gelu_tanh, quick_gelu])
def test_odd_part(layer):
    x = np.linspace(0, 6, 1001)
    y, slope = value_and_slope(layer, x)
    mirrored, mirrored_slope = value_and_slope(layer, -x)
    np.testing.assert_allclose(y - mirrored, x, atol=1e-15)  # x (F(x) + F(-x)) = x
    np.testing.assert_allclose(slope + mirrored_slope, 1, atol=1e-15)
