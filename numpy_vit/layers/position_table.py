"""Adding a table of positions to the tokens."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

from numpy_vit.layers import initial
from numpy_vit.tree import Array, Cache, Params


def init(rows: int, dim: int, rng: np.random.Generator, dtype: DTypeLike = np.float32) -> Params:
    """Return pos_embed (1, rows, D) drawn with deviation 0.02."""
    return {"pos_embed": initial.normal((1, rows, dim), rng, 0.02, dtype)}


def forward(params: Params, x: Array) -> tuple[Array, Cache]:
    """Add row i of the table to token i; a table without rows for the prefix tokens starts at the first patch.

    Parameters
    ----------
    params : pos_embed (1, R, D) with R = T+N, or R = N (timm's no_embed_class: the T prefix tokens get none)
    x : (B, T+N, D)

    Returns
    -------
    y : (B, T+N, D)

    Raises
    ------
    ValueError : the table has more rows than there are tokens, or another width.

    Source: Dosovitskiy et al. 2021, equation 1.
    """
    table = params["pos_embed"]
    if table.shape[1] > x.shape[1] or table.shape[2] != x.shape[2]:
        raise ValueError(f"a position table {table.shape} does not fit tokens {x.shape}: resize it to the image's grid")
    first = x.shape[1] - table.shape[1]
    y = np.array(x)
    y[:, first:] += table
    return y, (first,)


def backward(dy: Array, cache: Cache) -> tuple[Array, Params]:
    """Return dx and the table's gradient.

    (1) y_b = x_b + E for every sample b  ⇒  dx = dy
    (2) the table is shared by the batch  ⇒  dE = Σ_b dy_b, over the rows that E has
    """
    (first,) = cache
    return dy, {"pos_embed": dy[:, first:].sum(axis=0, keepdims=True)}  # (1), (2)
