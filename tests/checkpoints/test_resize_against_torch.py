"""Resizing against torch's interpolate and timm's own functions, in float64."""

from __future__ import annotations

import numpy as np
import pytest

from numpy_vit.checkpoints.resize import RESIZES, Resize, matrix, patch_kernel, positions

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.framework

SIZES = [(7, 12), (12, 7), (5, 5), (14, 16), (16, 14), (37, 16), (1, 4), (4, 1), (3, 24), (24, 3)]


@pytest.mark.parametrize("kernel", ["bilinear", "bicubic"])
@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize(("old", "new"), SIZES)
def test_every_rule_is_torch_s(kernel, antialias, align_corners, old, new):
    image = np.random.default_rng(0).standard_normal((1, 3, old, old + 2))
    theirs = torch.nn.functional.interpolate(
        torch.tensor(image), (new, new + 3), mode=kernel, antialias=antialias, align_corners=align_corners
    ).numpy()
    how = Resize(kernel, antialias, align_corners)
    ours = np.einsum("yr,bcrs,xs->bcyx", matrix(old, new, how), image, matrix(old + 2, new + 3, how))
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("old", "new"), [(14, 16), (37, 16), (14, 60)])
def test_dino_s_offset(old, new):
    table = np.random.default_rng(0).standard_normal((1, 1 + old * old, 5))
    square = torch.tensor(table[:, 1:]).reshape(1, old, old, 5).permute(0, 3, 1, 2)
    factor = (new + 0.1) / old
    theirs = torch.nn.functional.interpolate(square, scale_factor=(factor, factor), mode="bicubic")
    ours = positions(table, 1, (old, old), (new, new), RESIZES["dino"])[:, 1:]
    np.testing.assert_allclose(ours, theirs.permute(0, 2, 3, 1).reshape(1, -1, 5).numpy(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("grid", [(9, 5), (4, 7), (7, 4)])
def test_positions_are_timm_s(grid):
    resample = pytest.importorskip("timm.layers").resample_abs_pos_embed
    table = np.random.default_rng(0).standard_normal((1, 2 + 36, 5)).astype(np.float32)
    theirs = resample(torch.tensor(table), list(grid), [6, 6], num_prefix_tokens=2).numpy()
    np.testing.assert_allclose(positions(table, 2, (6, 6), grid, RESIZES["timm"]), theirs, rtol=0, atol=1e-6)


@pytest.mark.parametrize("new", [(8, 8), (3, 3), (6, 4)])
def test_patch_projections_are_timm_s(new):
    resample = pytest.importorskip("timm.layers").resample_patch_embed
    weight = np.random.default_rng(0).standard_normal((5, 3, 4, 4)).astype(np.float32)
    theirs = resample(torch.tensor(weight), list(new)).numpy()
    np.testing.assert_allclose(patch_kernel(weight, new), theirs, rtol=0, atol=3e-6 * np.abs(theirs).max())
