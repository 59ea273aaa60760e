"""The computed position tables against their formulas, entry by entry."""

from __future__ import annotations

import math

import numpy as np
import pytest

from numpy_vit.layers import sincos


def test_one_dimension_is_vaswanis_formula():
    count, dim = 7, 10
    table = sincos.sincos_1d(count, dim)
    assert table.shape == (1, count, dim)
    for p in range(count):
        for i in range(dim // 2):
            angle = p / 10000 ** (2 * i / dim)
            assert table[0, p, 2 * i] == pytest.approx(math.sin(angle), abs=1e-14)
            assert table[0, p, 2 * i + 1] == pytest.approx(math.cos(angle), abs=1e-14)


@pytest.mark.parametrize(
    ("compute", "exponent"),
    [(sincos.sincos_2d_mae, lambda i, quarter: i / quarter), (sincos.sincos_2d_simple, lambda i, q: i / (q - 1))],
)
def test_two_dimensions_are_columns_then_rows_each_sin_then_cos(compute, exponent):
    rows, columns, dim = 3, 5, 16
    quarter = dim // 4
    table = compute((rows, columns), dim)
    assert table.shape == (1, rows * columns, dim)
    for row in range(rows):
        for column in range(columns):
            token = table[0, row * columns + column]
            for i in range(quarter):
                frequency = 10000 ** -exponent(i, quarter)
                expected = [f(place * frequency) for place in (column, row) for f in (math.sin, math.cos)]
                np.testing.assert_allclose(token[i::quarter], expected, atol=1e-14)


def test_maes_first_half_is_the_column():
    table = sincos.sincos_2d_mae((3, 4), 16)[0].reshape(3, 4, 16)
    origin, right, below = table[0, 0], table[0, 1], table[1, 0]
    assert (origin[:8] != right[:8]).all() and (origin[8:] == right[8:]).all()
    assert (origin[:8] == below[:8]).all() and (origin[8:] != below[8:]).all()


def test_the_last_frequency_tells_the_two_apart():
    simple, mae = sincos.sincos_2d_simple((1, 2), 16)[0, 1], sincos.sincos_2d_mae((1, 2), 16)[0, 1]
    assert simple[3] == math.sin(1 / 10000)
    assert mae[3] == pytest.approx(math.sin(1 / 1000), rel=1e-14)  # 10000^(-3/4)
    assert simple[0] == mae[0] == math.sin(1)


def test_widths_that_do_not_divide():
    with pytest.raises(ValueError, match="multiple of 2, not 7"):
        sincos.sincos_1d(3, 7)
    for compute in (sincos.sincos_2d_mae, sincos.sincos_2d_simple):
        with pytest.raises(ValueError, match="multiple of 4, not 10"):
            compute((2, 2), 10)
    with pytest.raises(ValueError, match="at least 8, not 4"):
        sincos.sincos_2d_simple((2, 2), 4)
