"""Cutting images into patches, and putting them together again."""

from __future__ import annotations

from numpy_vit.tree import Array, Cache


def forward(images: Array, patch: tuple[int, int]) -> tuple[Array, Cache]:
    """Cut images into a row-major sequence of patches, each flattened as (channel, row, column).

    Parameters
    ----------
    images : (B, C, Y, X)
    patch : (py, px), the patch's height and width

    Returns
    -------
    patches : (B, N, C·py·px) with N = (Y/py)·(X/px)

    Raises
    ------
    ValueError : the patch does not divide the image.

    Source: Dosovitskiy et al. 2021, section 3.1; the order inside a patch is that of a convolution's weight.
    """
    B, C, Y, X = images.shape
    py, px = patch
    if Y % py or X % px:
        raise ValueError(
            f"a {Y}x{X} image is not a whole number of {py}x{px} patches: resize or pad it to "
            f"{-(-Y // py) * py}x{-(-X // px) * px}, or choose a patch that divides it"
        )
    grid = images.reshape(B, C, Y // py, py, X // px, px)
    grid = grid.transpose(0, 2, 4, 1, 3, 5)  # (B, Y/py, X/px, C, py, px)
    return grid.reshape(B, (Y // py) * (X // px), C * py * px), (images.shape, patch)


def backward(dpatches: Array, cache: Cache) -> Array:
    """Put the patches' gradients back where the pixels came from.

    (1) patches = P(images), P a permutation of the entries: each pixel goes to exactly one place
    (2) the transposed permutation is its inverse: dimages = P⁻¹(dpatches)

    So this is `unpatchify`: forward's reshape, transpose, reshape upside-down.
    """
    (B, C, Y, X), (py, px) = cache
    grid: Array = dpatches.reshape(B, Y // py, X // px, C, py, px)
    grid = grid.transpose(0, 3, 1, 4, 2, 5)  # (B, C, Y/py, py, X/px, px)
    dimages: Array = grid.reshape(B, C, Y, X)  # (2)
    return dimages


def unpatchify(patches: Array, image_shape: tuple[int, int, int], patch: tuple[int, int]) -> Array:
    """Put patches (B, N, C·py·px) together to images (B, C, Y, X): the inverse of `forward`.

    Parameters
    ----------
    image_shape : (C, Y, X)
    patch : (py, px)
    """
    return backward(patches, ((len(patches), *image_shape), patch))
