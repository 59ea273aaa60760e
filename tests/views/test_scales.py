"""Round ticks and ends of axes, against values by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from numpy_vit.views.scales import compact, drawable, extent, tick_labels, ticks


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((0, 1), [0, 0.2, 0.4, 0.6, 0.8, 1]),
        ((0, 0.3), [0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3]),
        ((0.13, 2.31), [0.5, 1.0, 1.5, 2.0]),
        ((-1, 1), [-1, -0.5, 0, 0.5, 1]),
        ((1, 1000), [200, 400, 600, 800, 1000]),
        ((0, 1e-3), [0, 0.0002, 0.0004, 0.0006, 0.0008, 0.001]),
        ((1, 3, 6, True), [1, 2, 3]),
        ((0.5, 1.5, 6, True), [1]),
        ((1, 30, 6, True), [5, 10, 15, 20, 25, 30]),
    ],
)
def test_ticks_by_hand(arguments, expected):
    assert ticks(*arguments) == expected  # exactly: 0.3, never 0.30000000000000004


@pytest.mark.parametrize("ends", [(1, 1), (2, 1), (0, math.inf), (math.nan, 1), (-1e308, 1e308)])
def test_ticks_refuse_an_impossible_axis(ends):
    with pytest.raises(ValueError, match="finite ends"):
        ticks(*ends)


@given(st.floats(-1e200, 1e200), st.floats(-1e200, 1e200), st.integers(2, 12))
def test_ticks_are_few_distinct_and_inside(low, high, most):
    if not high - low > 1e-9 * max(abs(low), abs(high), 1e-200):
        return
    values = ticks(low, high, most)
    slack = 1e-5 * (high - low)
    assert len(values) <= most + 1
    assert all(low - slack <= value <= high + slack for value in values)
    labels = tick_labels(values)
    assert len(set(labels)) == len(labels)
    np.testing.assert_allclose([float(label) for label in labels], values, rtol=1e-9, atol=slack)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0, 0.5, 1], ["0.0", "0.5", "1.0"]),
        ([0, 20, 40], ["0", "20", "40"]),
        ([0, 5e-6, 1e-5], ["0", "5e-6", "1.0e-5"]),
        ([0, 1e6, 2e6], ["0", "1e6", "2e6"]),
        ([0, 0.0002, 0.001], ["0.0000", "0.0002", "0.0010"]),
        ([1], ["1"]),
        ([0.0], ["0"]),
        ([], []),
    ],
)
def test_tick_labels_by_hand(values, expected):
    assert tick_labels(values) == expected


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (([0.31, 2.2],), (0, 2.5)),
        (([12.0, 99.2],), (0, 100)),
        (([5e-4, 1e-3], [0]), (0, 1e-3)),
        (([math.nan, math.inf, 1.0, 3.0, math.nan],), (1, 3)),
        (([],), (0, 1)),
        (([math.nan],), (0, 1)),
        (([0.0, 0.0], [], (0, 100)), (0, 1)),
        (([100.0], [], (0, 100)), (90, 100)),
        (([50.0], [], (0, 100)), (44, 56)),
    ],
)
def test_extent_by_hand(arguments, expected):
    assert extent(*arguments) == pytest.approx(expected)


@given(st.lists(st.floats(width=64)))
def test_extent_holds_whatever_can_be_drawn(values):
    low, high = extent(values)
    assert low < high
    assert all(low <= value <= high for value in values if drawable(value))
    assert ticks(low, high)


@pytest.mark.parametrize(
    ("value", "text"), [(0.41234, "0.4123"), (2.5e-5, "2.5e-5"), (math.nan, "nan"), (1e20, "1e20"), (0, "0")]
)
def test_compact(value, text):
    assert compact(value) == text
