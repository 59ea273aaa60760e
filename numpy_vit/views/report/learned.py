"""What a model learned before its first block: its positions and its patch filters, as pictures in the page."""

from __future__ import annotations

import numpy as np
from PIL import Image

from numpy_vit.models.vit_config import Config
from numpy_vit.tree import Array, Params
from numpy_vit.views import patch_filters, position_maps
from numpy_vit.views.colour_maps import diverging
from numpy_vit.views.report.markup import note, opening, paragraph, picture_url, tag
from numpy_vit.views.tiles import drawn_size

_WIDE = 720  # pixels of the whole picture, about
_FILTERS, _FILTER_SIDE, _COLUMNS = 28, 64, 7


def positions(params: Params, config: Config) -> str:
    """Return the maps of how alike the patches' positions are, and a number for it."""
    if config.pos_embed == "none":
        return note("This model has no position table.")
    alike = position_maps.similarities(position_maps.rows(params, config), config.grid)  # (gy, gx, gy, gx)
    gy, gx = config.grid
    thinned, every = position_maps.thinned(alike)
    tiles = diverging(thinned)  # (rows, columns, gy, gx, 3)
    size = drawn_size((gy, gx), max(max(gy, gx), min(96, _WIDE // max(tiles.shape[:2]))))
    words = f"{gy} × {gx} patches" + (f", every {every}th has a tile" if every > 1 else "")
    said = f"maps of how alike the positions of {words} are"
    near = f"{position_maps.nearness(alike):.2f}".replace("-", "−")
    text = (
        f"Correlation of likeness and distance: {near}. Towards −1, the model knows which patches lie near each other; "
        "at 0, its table knows nothing of the grid."
    )
    scale = "Blue: −1, opposite. Grey: 0, unlike. Vermilion: 1, the same."
    return paragraph(text) + _figure(mosaic(tiles, size), said, scale)


def filters(params: Params) -> str:
    """Return the principal components of the patch projection's filters as pictures."""
    weight = params["patch_embed"]["proj"]["weight"]
    components, shares = patch_filters.components(weight, _FILTERS)
    tiles = np.stack([patch_filters.colours(component) for component in components])  # (n, py, px, 3)
    size = drawn_size(tiles.shape[1:3], _FILTER_SIDE)
    columns = min(_COLUMNS, len(tiles))
    missing = -len(tiles) % columns
    blank = np.full((missing, *tiles.shape[1:]), 127, np.uint8)  # grey: nothing
    grid = np.concatenate([tiles, blank]).reshape(-1, columns, *tiles.shape[1:])
    said = f"the first {len(tiles)} principal components of {len(weight)} filters"
    scale = f"{len(tiles)} components, row by row; they hold {float(shares.sum()):.0%} of the filters' variance."
    return _figure(mosaic(grid, size), said, scale)


def mosaic(tiles: Array, size: tuple[int, int]) -> Array:
    """Return tiles (rows, columns, y, x, 3), each drawn in a size (Y, X), as a picture with clear gaps (…, …, 4)."""
    rows, columns = tiles.shape[:2]
    height, width = size
    gap = max(2, min(size) // 12)
    sheet = np.zeros((rows * (height + gap) - gap, columns * (width + gap) - gap, 4), np.uint8)
    for i in range(rows):
        for j in range(columns):
            drawn = Image.fromarray(np.ascontiguousarray(tiles[i, j])).resize((width, height), Image.Resampling.NEAREST)
            y, x = i * (height + gap), j * (width + gap)
            sheet[y : y + height, x : x + width, :3] = np.asarray(drawn)
            sheet[y : y + height, x : x + width, 3] = 255
    return sheet


def _figure(picture: Array, said: str, scale: str) -> str:
    height, width = picture.shape[:2]
    image = opening("img", src=picture_url(picture), alt=said, width=width, height=height, class_="mosaic")
    return tag("figure", image + tag("figcaption", paragraph(scale)))
