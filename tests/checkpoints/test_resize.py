"""Resizing positions and patch projections: fixed numbers, and what every rule owes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from numpy_vit.checkpoints.resize import RESIZES, Resize, matrix, patch_kernel, positions
from numpy_vit.layers import patch_embed

every_rule = pytest.mark.parametrize("how", RESIZES.values(), ids=RESIZES)


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        (Resize(), [-0.03515625, -0.10546875, 0.26171875, 0.87890625, 0.87890625, 0.26171875]),
        (Resize(antialias=True), [-0.0234375, -0.0703125, 0.2265625, 0.8671875, 0.8671875, 0.2265625]),
    ],
    ids=["a = -0.75", "a = -0.5, antialias"],
)
def test_impulse_response_from_8_to_16(how, expected):
    response = matrix(8, 16, how)[:, 4]
    np.testing.assert_allclose(response[5:11], expected, atol=1e-12)


def test_align_corners_keeps_the_corners():
    for kernel in ("bilinear", "bicubic"):
        weights = matrix(5, 9, Resize(kernel, align_corners=True))
        np.testing.assert_allclose(weights[::2], np.eye(5), atol=1e-12)  # every second new sample is an old one


def test_bilinear_half_pixel_by_hand():
    np.testing.assert_allclose(matrix(2, 4, Resize("bilinear")), [[1, 0], [0.75, 0.25], [0.25, 0.75], [0, 1]])
    np.testing.assert_allclose(matrix(4, 2, Resize("bilinear")), [[0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5]])
    shrunk = matrix(4, 2, Resize("bilinear", antialias=True))
    np.testing.assert_allclose(shrunk[0], np.array([3, 3, 1, 0]) / 7)


@every_rule
@settings(max_examples=40, deadline=None)
@given(old=st.integers(1, 12), new=st.integers(1, 12))
def test_constants_stay_and_the_same_size_changes_nothing(how, old, new):
    np.testing.assert_allclose(matrix(old, new, how).sum(axis=1), 1, atol=1e-12)
    if not how.offset:
        np.testing.assert_allclose(matrix(old, old, how), np.eye(old), atol=1e-12)


def test_dino_s_scale_is_not_the_ratio_of_the_sides():
    quirk, plain = matrix(14, 16, RESIZES["dino"]), matrix(14, 16, RESIZES["half_pixel"])
    assert np.abs(quirk - plain).max() > 0.01
    np.testing.assert_allclose(quirk[3], _row(14, 14 / 16.1 * 3.5 - 0.5), atol=1e-12)


def _row(size, source):
    """Keys' kernel at -0.75, written out."""
    row, first = np.zeros(size), int(np.floor(source))
    t, a = source - first, -0.75
    near = [((a + 2) * s - (a + 3)) * s * s + 1 for s in (t, 1 - t)]
    far = [a * (((s - 5) * s + 8) * s - 4) for s in (1 + t, 2 - t)]
    row[first - 1 : first + 3] = [far[0], near[0], near[1], far[1]]
    return row


@every_rule
def test_prefix_rows_and_a_fitting_grid_stay(how):
    table = np.random.default_rng(0).standard_normal((1, 2 + 12, 5)).astype(np.float32)
    resized = positions(table, 2, (3, 4), (6, 5), how)
    assert resized.shape == (1, 2 + 30, 5)
    assert resized.dtype == np.float32
    np.testing.assert_array_equal(resized[:, :2], table[:, :2])
    assert positions(table, 2, (3, 4), (3, 4), how) is table  # DINO's too
    turned = positions(table, 2, (3, 4), (4, 3), how)  # as many tokens, another grid
    assert np.abs(turned - table).max() > 0.1


def test_rows_and_columns_are_not_exchanged():
    grid = np.arange(3)[:, None] * 10 + np.arange(4)
    table = grid.reshape(1, 12, 1).astype(np.float64)
    wide = positions(table, 0, (3, 4), (3, 8), Resize("bilinear"))[0, :, 0].reshape(3, 8)
    np.testing.assert_allclose(wide[:, 0], [0, 10, 20])
    np.testing.assert_allclose(wide[0], [0, 0.25, 0.75, 1.25, 1.75, 2.25, 2.75, 3])


def test_a_table_of_another_size_is_refused():
    with pytest.raises(ValueError, match="10 rows is not 1 prefix rows and a 2x4 grid"):
        positions(np.zeros((1, 10, 3)), 1, (2, 4), (4, 4), Resize())
    with pytest.raises(ValueError, match="'nearest' is unknown"):
        matrix(2, 3, Resize("nearest"))


def test_tokens_of_patches_resized_alike_stay_when_patches_grow():
    rng = np.random.default_rng(0)
    weight, patch = rng.standard_normal((5, 2, 4, 3)), rng.standard_normal((1, 2, 4, 3))
    how = RESIZES["timm"]
    larger = np.einsum("yr,bcrs,xs->bcyx", matrix(4, 6, how), patch, matrix(3, 5, how))
    before = patch_embed.forward({"proj": {"weight": weight}}, patch)[0]
    after = patch_embed.forward({"proj": {"weight": patch_kernel(weight, (6, 5))}}, larger)[0]
    np.testing.assert_allclose(after, before, atol=1e-10)
    assert patch_kernel(weight, (4, 3)) is weight
