"""A picture of what speaks for a class: contributions of pixels and of patches beside the image."""

from __future__ import annotations

from PIL import Image

from numpy_vit.tree import Array
from numpy_vit.views import heat_maps
from numpy_vit.views.tiles import Sheet, drawn_size

_SIDE = 224
NAMES = ("image", "gradient x input", "integrated gradients", "their sum over patches", "weighted rollout")


def picture(image: Array, product: Array, contributions: Array, rollout: Array, title: str) -> Image.Image:
    """Draw the image, both signed maps of its pixels, and the patches' map laid over it.

    Parameters
    ----------
    image : (Y, X, 3) bytes
    product, contributions : (C, Y, X); a pixel's value is the sum over its channels
    rollout : (gy, gx)
    title : stands above
    """
    size = image.shape[:2]
    foot = ["", "full colour at the 99th percentile of a map's magnitudes; the rollout from 0 to its largest weight"]
    sheet = Sheet(drawn_size(size, _SIDE), NAMES, [""], title, foot)
    heat_maps.colour_bar(sheet.canvas, 90, sheet.foot, 120, "against it", "for it", sign=True)
    by_patch = over_patches(contributions, rollout.shape)
    signed = [heat_maps.signed(values, size) for values in (product.sum(axis=0), contributions.sum(axis=0), by_patch)]
    return sheet.finish([[image, *signed, heat_maps.overlay(rollout, image)]])


def over_patches(contributions: Array, grid: tuple[int, ...]) -> Array:
    """Return what each patch adds (gy, gx): the sum over its channels and pixels, which keeps the sum over all.

    Parameters
    ----------
    contributions : (C, Y, X)
    grid : (gy, gx), which divides (Y, X)
    """
    C, Y, X = contributions.shape
    gy, gx = grid
    summed: Array = contributions.reshape(C, gy, Y // gy, gx, X // gx).sum(axis=(0, 2, 4))
    return summed
