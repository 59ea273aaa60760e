"""Which positions are alike: closed forms of made tables, and the picture's tiles."""

from __future__ import annotations

import numpy as np
import pytest

from numpy_vit.models import vit
from numpy_vit.views import position_maps

SIZES = {"image_size": (6, 8), "patch_size": 2, "num_classes": 3, "embed_dim": 8, "depth": 1, "num_heads": 2}


def test_the_rows_are_those_of_the_patches():
    config = vit.Config(**SIZES, reg_tokens=1)
    params = vit.init(config, np.random.default_rng(0))
    np.testing.assert_array_equal(position_maps.rows(params, config), params["pos_embed"][0, 2:])
    fixed = vit.Config(**SIZES, pos_embed="sincos_2d_mae")
    np.testing.assert_array_equal(
        position_maps.rows(vit.init(fixed, np.random.default_rng(0)), fixed), vit.fixed_table(fixed, np.float32)[0, 1:]
    )
    none = vit.Config(**SIZES, pos_embed="none")
    with pytest.raises(ValueError, match="no position table"):
        position_maps.rows(vit.init(none, np.random.default_rng(0)), none)


def test_cosines_in_closed_form():
    table = np.array([[3.0, 0.0], [0.0, 2.0], [-1.0, 0.0], [1.0, 1.0], [0.0, 0.0], [5.0, 0.0]])
    found = position_maps.similarities(table, (2, 3))
    root = np.sqrt(0.5)
    np.testing.assert_allclose(found[0, 0], [[1, 0, -1], [root, 0, 1]], atol=1e-15)
    np.testing.assert_allclose(found[1, 1], 0)  # the row of zeros is like nothing


def test_sin_cos_positions_know_the_grid_and_random_ones_do_not():
    config = vit.Config(**{**SIZES, "image_size": (20, 20), "embed_dim": 64}, pos_embed="sincos_2d_mae")
    table = vit.fixed_table(config, np.float64)[0, 1:]
    assert position_maps.nearness(position_maps.similarities(table, (10, 10))) < -0.8
    drawn = np.random.default_rng(0).standard_normal((100, 64))
    assert abs(position_maps.nearness(position_maps.similarities(drawn, (10, 10)))) < 0.05
    assert position_maps.nearness(np.ones((1, 1, 1, 1))) == 0.0


@pytest.mark.parametrize(("grid", "tiles"), [((3, 4), 12), ((1, 8), 8), ((20, 20), 100)])
def test_a_tile_for_each_patch_or_for_every_second(grid, tiles):
    table = np.eye(grid[0] * grid[1])
    picture = np.asarray(position_maps.picture(position_maps.similarities(table, grid), "a title"), int)
    hot = (picture == (0xD5, 0x5E, 0x00)).all(axis=-1)  # each position is like itself alone
    rows, columns = np.nonzero(hot)
    top = rows < picture.shape[0] - 45  # the colour bar stands below
    starts = {(y, x) for y, x in zip(rows[top], columns[top], strict=True) if not hot[y - 1, x] and not hot[y, x - 1]}
    assert len(starts) == tiles
