"""Pictures of where a model looks: a tile for each block and head, and the rollout through all blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from PIL import Image

from numpy_vit.tree import Array
from numpy_vit.views import heat_maps
from numpy_vit.views.tiles import Sheet, drawn_size

_SIDE, _WIDE = 96, 2000  # pixels of a tile, as long as the sheet stays below this width
_LEAST = 48
_LARGE = 256  # pixels of the rollout's pictures


def heads_over_image(maps: Array, image: Array, title: str) -> Image.Image:
    """Draw the map of every block (a row) and head (a column), and the heads' mean, laid over the image.

    Parameters
    ----------
    maps : (L, H, gy, gx), as from attention_maps.maps
    image : (Y, X, 3) bytes
    title : stands above
    """
    return _grid(maps, image.shape[:2], lambda heat: heat_maps.overlay(heat, image), title)


def heads_alone(maps: Array, size: tuple[int, int], title: str) -> Image.Image:
    """Draw the same without the image, which is of a size (Y, X)."""
    return _grid(maps, size, lambda heat: heat_maps.raw(heat, size), title)


def single(heat: Array, image: Array, name: str, title: str) -> Image.Image:
    """Draw an image, one map (gy, gx) laid over it, and the map alone.

    Parameters
    ----------
    image : (Y, X, 3) bytes
    name : of the map
    title : stands above
    """
    size = image.shape[:2]
    drawn = drawn_size(size, _LARGE)
    most = f"{float(heat.max()):.1%} a patch"
    sheet = Sheet(drawn, ["image", f"{name}, over it", f"{name}, alone"], [""], title, [""])
    heat_maps.colour_bar(sheet.canvas, 40, sheet.foot, 120, "0", most)
    return sheet.finish([[image, heat_maps.overlay(heat, image), heat_maps.raw(heat, size)]])


def gallery(
    images: Sequence[Array], rows: Mapping[str, Sequence[Array]], words: Sequence[str], title: str
) -> Image.Image:
    """Draw several images, a column each, and below each its maps laid over it.

    Parameters
    ----------
    images : (Y, X, 3) bytes, all of one size
    rows : for each row's name a map (gy, gx) for each image
    words : stands above each image
    """
    drawn = drawn_size(images[0].shape[:2], _SIDE)
    foot = ["each map from 0 (dark) to its own largest value (yellow)"]
    sheet = Sheet(drawn, words, ["image", *rows], title, foot)
    over = [
        [heat_maps.overlay(heat, image) for heat, image in zip(maps, images, strict=True)] for maps in rows.values()
    ]
    return sheet.finish([images, *over])


def _grid(maps: Array, size: tuple[int, int], draw: Callable[[Array], Array], title: str) -> Image.Image:
    L, H = maps.shape[:2]
    side = max(_LEAST, min(_SIDE, _WIDE // (H + 1)))
    tiles = np.concatenate([maps, maps.mean(axis=1, keepdims=True)], axis=1)  # (L, H + 1, gy, gx)
    sheet = Sheet(
        drawn_size(size, side),
        [f"head {i}" for i in range(H)] + ["mean"],
        [f"block {i}" for i in range(L)],
        title,
        ["each tile from 0 (dark) to its own largest weight (yellow)"],
    )
    return sheet.finish([[draw(heat) for heat in row] for row in tiles])
