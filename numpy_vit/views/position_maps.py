"""What a model's position table says of which patches are near each other."""

from __future__ import annotations

import numpy as np
from PIL import Image

from numpy_vit.models import vit
from numpy_vit.models.vit_config import Config
from numpy_vit.tree import Array, Params
from numpy_vit.views import heat_maps
from numpy_vit.views.colour_maps import diverging
from numpy_vit.views.tiles import Sheet, drawn_size

_MOST = 16  # tiles a side; of a larger grid, every second, third, ... patch has one
_WIDE, _LEAST, _LARGEST = 900, 24, 160


def rows(params: Params, config: Config) -> Array:
    """Return the rows of the patches (N, D) in the position table, learned or computed.

    Raises
    ------
    ValueError : a model without positions.
    """
    if config.pos_embed == "none":
        raise ValueError("this model has no position table: pos_embed is 'none'")
    weight = params["patch_embed"]["proj"]["weight"]
    table = params["pos_embed"] if config.pos_embed == "learned" else vit.fixed_table(config, weight.dtype)
    patches: Array = table[0, -config.num_patches :]
    return patches


def similarities(rows: Array, grid: tuple[int, int]) -> Array:
    """Return the cosine similarity (gy, gx, gy, gx) of each patch's row with every other's.

    A row of zeros is like nothing: its similarities are 0.

    Parameters
    ----------
    rows : (N, D)
    grid : (gy, gx)

    Source: Dosovitskiy et al. 2021, figure 7 (centre).
    """
    wide = rows.astype(np.float64)
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    unit = np.divide(wide, lengths, out=np.zeros_like(wide), where=lengths > 0)
    cosines: Array = (unit @ unit.T).reshape(*grid, *grid)
    return cosines


def picture(similarities: Array, title: str) -> Image.Image:
    """Draw a map for each patch, where the patch lies: how alike its position is to every other's.

    Parameters
    ----------
    similarities : (gy, gx, gy, gx), -1 … 1
    """
    gy, gx = similarities.shape[:2]
    shown, every = thinned(similarities)
    tile = drawn_size((gy, gx), max(_LEAST, min(_LARGEST, _WIDE // shown.shape[1])))
    foot = ["", f"each tile: one patch and all {gy}x{gx} patches" + (f"; every {every}th patch" if every > 1 else "")]
    sheet = Sheet(tile, [""] * shown.shape[1], [""] * shown.shape[0], title, foot)
    heat_maps.colour_bar(sheet.canvas, 40, sheet.foot, 120, "-1", "1, the cosine of both positions", sign=True)
    return sheet.finish([[diverging(heat) for heat in row] for row in shown])


def thinned(similarities: Array) -> tuple[Array, int]:
    """Return the maps of every patch, or of a large grid those of every k-th row and column, and k."""
    every = -(-max(similarities.shape[:2]) // _MOST)
    return similarities[::every, ::every], every


def nearness(similarities: Array) -> float:
    """Return the correlation of similarity and distance, over all pairs of patches: negative where near is alike.

    A table that knows nothing of the grid gives about 0; so do one patch and equal similarities.
    """
    gy, gx = similarities.shape[:2]
    y, x = np.divmod(np.arange(gy * gx), gx)
    distance = np.hypot(y[:, np.newaxis] - y, x[:, np.newaxis] - x)
    pairs = ~np.eye(gy * gx, dtype=bool)
    near, alike = distance[pairs], similarities.reshape(gy * gx, gy * gx)[pairs]
    if near.size == 0 or near.std() == 0 or alike.std() == 0:
        return 0.0
    return float(np.corrcoef(near, alike)[0, 1])
