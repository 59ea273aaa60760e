"""Functions applied in pieces give what they give at once, whatever the size, the shape and the layout."""

from __future__ import annotations

import numpy as np
import pytest

from numpy_vit.layers import elementwise


@pytest.mark.parametrize("size", [0, 1, 8191, 8192, 8193, 20000])
def test_pieces_cover_everything_once(size):
    seen = []

    def square(x):
        assert x.ndim == 1
        seen.append(x.size)
        return x * x, 2 * x

    x = np.arange(float(size))
    value, slope = elementwise.value_and_slope(square, x)
    np.testing.assert_array_equal(value, x * x)
    np.testing.assert_array_equal(slope, 2 * x)
    assert sum(seen) == size


@pytest.mark.parametrize(
    "x", [np.arange(24.0).reshape(2, 3, 4).T, np.arange(60.0).reshape(6, 10)[::2, ::-3], np.float32(3)]
)
def test_any_shape_and_layout(x):
    value, slope = elementwise.value_and_slope(lambda piece: (piece * piece, 2 * piece), np.asarray(x))
    np.testing.assert_array_equal(value, x * x)
    np.testing.assert_array_equal(slope, 2 * x)
    assert value.dtype == slope.dtype == x.dtype
