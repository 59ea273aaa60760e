"""Resizing position tables and patch projections, to the numbers that PyTorch gives.

Interpolation in two dimensions is a matrix for the rows and one for the columns: each row of such a matrix holds
the weights with which the old samples make one new sample.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from numpy_vit.tree import Array


@dataclass(frozen=True)
class Resize:
    """How a family resizes its position table.

    Parameters
    ----------
    kernel : "bicubic" or "bilinear"
    antialias : widen the kernel when shrinking; bicubic then has a = -0.5 (Pillow's) instead of -0.75, growing too
    align_corners : the outermost samples stay where they are, instead of the outermost edges
    offset : added to the new side before the scale is computed from it: 0.1 in DINO
    """

    kernel: str = "bicubic"
    antialias: bool = False
    align_corners: bool = False
    offset: float = 0.0


RESIZES = {
    "timm": Resize(antialias=True),  # also DINOv2 with registers
    "half_pixel": Resize(),  # DeiT, MAE, Hugging Face
    "dino": Resize(offset=0.1),  # DINO and DINOv2 without registers
    "torchvision": Resize(align_corners=True),
    "google": Resize("bilinear", align_corners=True),  # scipy's zoom of order 1, in the reference code
    "timm_npz": Resize("bilinear"),  # what timm does with the same files
}


def positions(table: Array, prefix: int, grid: tuple[int, int], new: tuple[int, int], how: Resize) -> Array:
    """Resize a position table to another grid of patches; prefix rows stay, and so does a table that fits already.

    Parameters
    ----------
    table : (1, T+N, D)
    prefix : T, the rows in front that belong to no patch
    grid, new : (rows, columns) of patches before and after

    Returns
    -------
    table : (1, T+N', D), of the same dtype

    Raises
    ------
    ValueError : a table whose rows are not those of the grid.
    """
    rows, dim = table.shape[1:]
    if rows != prefix + grid[0] * grid[1]:
        raise ValueError(f"a position table of {rows} rows is not {prefix} prefix rows and a {grid[0]}x{grid[1]} grid")
    if grid == new:
        return table
    down, across = (matrix(old, size, how) for old, size in zip(grid, new, strict=True))
    patches = table[0, prefix:].astype(np.float64).reshape(*grid, dim)
    resized = np.einsum("yr,rcd,xc->yxd", down, patches, across, optimize=True).reshape(1, -1, dim)
    return np.concatenate([table[:, :prefix], resized.astype(table.dtype)], axis=1)


def patch_kernel(weight: Array, new: tuple[int, int]) -> Array:
    """Give a patch projection another patch size, so that patches resized alike have the tokens they had.

    With B the matrix that resizes a patch from the old size to the new: the new kernel w' that makes
    ⟨B x, w'⟩ = ⟨x, w⟩ for all x when growing, and comes nearest when shrinking, is w' = (Bᵀ)⁺ w.

    Parameters
    ----------
    weight : (D, C, py, px)
    new : the new (py, px)

    Source: Beyer et al. 2023 (FlexiViT), section 3.4; bicubic with antialias, as in timm.
    """
    py, px = weight.shape[2:]
    if (py, px) == new:
        return weight
    how = RESIZES["timm"]
    inverse = [np.linalg.pinv(matrix(old, size, how).T) for old, size in zip((py, px), new, strict=True)]
    # the pseudo-inverse of a Kronecker product is that of its factors
    resized: Array = np.einsum("yr,dkrc,xc->dkyx", inverse[0], weight.astype(np.float64), inverse[1], optimize=True)
    kernel: Array = resized.astype(weight.dtype)
    return kernel


def matrix(old: int, new: int, how: Resize) -> Array:
    """Return the (new, old) matrix that resizes a line of samples.

    Raises
    ------
    ValueError : an unknown kernel, or sides below 1.

    Source: PyTorch's upsample_bilinear2d, upsample_bicubic2d and their antialiased forms (Keys 1981).
    """
    if how.kernel not in ("bicubic", "bilinear"):
        raise ValueError(f"kernel {how.kernel!r} is unknown: choose 'bicubic' or 'bilinear'")
    if min(old, new) < 1:
        raise ValueError(f"cannot resize {old} samples to {new}")
    corners = (old - 1) / (new - 1) if new > 1 else 0.0
    scale = corners if how.align_corners else old / (new + how.offset)
    return _antialiased(old, new, scale, how) if how.antialias else _plain(old, new, scale, how)


def _plain(old: int, new: int, scale: float, how: Resize) -> Array:
    weights = np.zeros((new, old))
    for j in range(new):
        source = scale * j if how.align_corners else scale * (j + 0.5) - 0.5
        if how.kernel == "bilinear":
            source = max(source, 0.0)
        first = math.floor(source)
        reach, kernel = ((0, 1), _triangle) if how.kernel == "bilinear" else ((-1, 2), _cubic)
        for k in range(first + reach[0], first + reach[1] + 1):
            weights[j, min(max(k, 0), old - 1)] += kernel(source - k, -0.75)  # beyond the border, the border
    return weights


def _antialiased(old: int, new: int, scale: float, how: Resize) -> Array:
    weights = np.zeros((new, old))
    kernel, support = (_triangle, 1.0) if how.kernel == "bilinear" else (_cubic, 2.0)
    stretch = max(scale, 1.0)
    for j in range(new):
        centre = scale * (j + 0.5)  # with align_corners too: so does torch
        first = max(int(centre - support * stretch + 0.5), 0)
        last = min(int(centre + support * stretch + 0.5), old)
        for k in range(first, last):
            weights[j, k] = kernel((k - centre + 0.5) / stretch, -0.5)
        weights[j] /= weights[j].sum()  # beyond the border there is nothing
    return weights


def _triangle(x: float, _: float) -> float:
    return max(0.0, 1 - abs(x))


def _cubic(x: float, a: float) -> float:
    x = abs(x)
    if x < 1:
        return ((a + 2) * x - (a + 3)) * x * x + 1
    if x < 2:
        return a * (((x - 5) * x + 8) * x - 4)
    return 0.0
