"""Working in pieces sees what working at once sees, whatever the size, the shape and the layout."""

from __future__ import annotations

import numpy as np
import pytest

from numpy_vit.layers import elementwise


@pytest.mark.parametrize("size", [0, 1, 65535, 65536, 65537, 160000])
def test_pieces_cover_everything_once(size):
    x, y = np.arange(float(size)), np.empty(size)
    sizes = []
    for xs, ys in elementwise.pieces(x, y):
        assert xs.ndim == 1
        sizes.append(xs.size)
        ys[...] = xs * xs
    np.testing.assert_array_equal(y, x * x)
    assert sum(sizes) == size


@pytest.mark.parametrize(
    "x", [np.arange(24.0).reshape(2, 3, 4).T, np.arange(60.0).reshape(6, 10)[::2, ::-3], np.array(3.0)]
)
def test_any_shape_and_layout(x):
    y = np.empty(x.shape)
    for xs, ys in elementwise.pieces(x, y):
        ys[...] = 2 * xs
    np.testing.assert_array_equal(y, 2 * x)
