"""The numeric derivative against closed forms, and its estimate of its own error."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from numpy_vit.checks.numerical import (
    contributions,
    derivative,
    direction_line,
    element_line,
    estimate,
    refine,
    step,
    typical,
)

ONE = np.ones(1)
CURVES = {
    "exp": (np.exp, np.exp),
    "sin": (np.sin, np.cos),
    "tanh": (np.tanh, lambda x: 1 - np.tanh(x) ** 2),
    "reciprocal": (lambda x: 1 / (2 + x), lambda x: -1 / (2 + x) ** 2),
}


@pytest.mark.parametrize("name", CURVES)
@given(x=st.floats(-1, 1))
def test_curves(name, x):
    curve, slope = CURVES[name]
    found = estimate(lambda t: np.array([curve(x + t)]), ONE, step(1.0))
    assert abs(found.value - slope(x)) <= 2e-11
    fine = refine(lambda t: np.array([curve(x + t)]), ONE, step(1.0))
    assert abs(fine.value - slope(x)) <= max(fine.noise, 1e-15)
    assert fine.noise < 1e-10 and not fine.rough


@given(st.lists(st.floats(-2, 2), min_size=5, max_size=5))
def test_polynomials_up_to_degree_four_are_exact(coefficients):
    polynomial = np.polynomial.Polynomial(coefficients)
    slopes = derivative(lambda t: np.array([polynomial(0.5 + t)]), 0.25)
    np.testing.assert_allclose(slopes, polynomial.deriv()(0.5), rtol=0, atol=1e-12)


def test_the_error_falls_with_the_fourth_power_and_the_stated_constant():
    errors = [derivative(lambda t: np.array([np.exp(t)]), h)[0] - 1.0 for h in (0.1, 0.05)]
    assert errors[0] / errors[1] == pytest.approx(16, rel=0.01)
    assert -errors[1] == pytest.approx(0.05**4 / 30, rel=0.01)  # formula (4), all derivatives being 1


def test_outputs_that_do_not_move_leave_no_rounding():
    v = np.array([1.0, 1e12])
    found = estimate(lambda t: np.array([np.sin(t), 1.2345]), v, step(1.0))
    assert found.value == pytest.approx(1.0, rel=1e-11)


def test_a_narrow_bend_is_not_stepped_over():
    # tanh(x/1e-6) + x looks like a line of slope 1 to all steps above 1e-4.
    found = refine(lambda t: np.array([1e-6 * np.tanh(t / 1e-6) + t]), ONE, step(1.0))
    assert abs(found.value - 2.0) <= min(found.noise, 1e-3)


def test_float32_is_rough_and_bad_conditioning_is_not():
    assert refine(lambda t: np.sin(np.array([0.3 + t], np.float32)).astype(float), ONE, step(1.0)).rough
    assert not refine(lambda t: (np.array([1e3 + 0.3 + t]) - 1e3) ** 2, ONE, step(1.0)).rough


def test_leaves_are_restored():
    leaf = np.array([[1.0, 2.0], [3.0, 4.0]])
    before = leaf.copy()

    def outputs():
        return leaf.ravel() ** 2

    assert element_line(outputs, leaf, (1, 0))(0.5)[2] == 3.5**2
    assert direction_line(outputs, [leaf], [np.eye(2)])(0.5)[3] == 4.5**2
    np.testing.assert_array_equal(leaf, before)


def test_contributions_split_the_gradient_by_samples():
    leaf, x = np.array([0.3, -0.2]), np.array([1.0, 2.0, 3.0])

    def outputs():
        return leaf[0] * x + leaf[1] ** 2

    parts = contributions(outputs, leaf, np.ones(3), np.array([0, 0, 1]), 2, [(0,), (1,)])
    np.testing.assert_allclose(parts, [[3.0, -0.8], [3.0, -0.4]], rtol=1e-10)


def test_the_typical_magnitude_ignores_zeros_and_outliers():
    assert typical(np.array([0.0, 0.0, 2.0, -2.0, -1e9])) == 2.0
    assert typical(np.zeros(3)) == 1.0
    assert step(1e-3) < 2e-6 and step(1e3) > 1.0
