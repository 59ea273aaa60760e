"""Position tables that are computed, not learned."""

from __future__ import annotations

import numpy as np

from numpy_vit.tree import Array


def sincos_1d(count: int, dim: int) -> Array:
    """Return sines and cosines of the token's index, interleaved: (1, count, dim) in float64.

    E[p, 2i] = sin(p / 10000^(2i/D)),  E[p, 2i+1] = cos(p / 10000^(2i/D))

    Raises
    ------
    ValueError : an odd width.

    Source: Vaswani et al. 2017, section 3.5.
    """
    _demand_multiple(dim, 2)
    angles = np.arange(count)[:, None] * 10000.0 ** (-np.arange(0, dim, 2) / dim)  # (count, D/2)
    table = np.stack([np.sin(angles), np.cos(angles)], axis=-1)
    return table.reshape(1, count, dim)


def sincos_2d_mae(grid: tuple[int, int], dim: int) -> Array:
    """Return MAE's table for a (rows, columns) grid: (1, N, dim) in float64.

    The first half of the channels encodes the column, the second the row; each is [sin | cos] with the
    frequencies 10000^(-i/(D/4)).

    Raises
    ------
    ValueError : a width that is not a multiple of 4.

    Source: He et al. 2022; the reference code's variable names say row where it means column.
    """
    _demand_multiple(dim, 4)
    quarter = dim // 4
    return _two_dimensional(grid, 10000.0 ** (-np.arange(quarter) / quarter))


def sincos_2d_simple(grid: tuple[int, int], dim: int) -> Array:
    """Return SimpleViT's table for a (rows, columns) grid: (1, N, dim) in float64.

    As `sincos_2d_mae`, but with the frequencies 10000^(-i/(D/4 - 1)): the last one is exactly 1/10000.

    Raises
    ------
    ValueError : a width that is not a multiple of 4, or is 4 (D/4 - 1 would be zero).

    Source: Beyer et al. 2022 (Better plain ViT baselines), as in big_vision and vit-pytorch's SimpleViT.
    """
    _demand_multiple(dim, 4)
    quarter = dim // 4
    if quarter < 2:
        raise ValueError(f"SimpleViT's sin-cos table needs a width of at least 8, not {dim}")
    return _two_dimensional(grid, 10000.0 ** (-np.arange(quarter) / (quarter - 1)))


def _two_dimensional(grid: tuple[int, int], frequencies: Array) -> Array:
    rows, columns = np.mgrid[: grid[0], : grid[1]].reshape(2, -1, 1)  # each (N, 1)
    column, row = columns * frequencies, rows * frequencies  # (N, D/4)
    return np.concatenate([np.sin(column), np.cos(column), np.sin(row), np.cos(row)], axis=-1)[None]


def _demand_multiple(dim: int, factor: int) -> None:
    if dim % factor:
        raise ValueError(f"a sin-cos position table needs a width that is a multiple of {factor}, not {dim}")
