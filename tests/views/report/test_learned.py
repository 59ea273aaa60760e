"""Positions and filters as pictures in the page."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
from PIL import Image

from numpy_vit.views import position_maps
from numpy_vit.views.colour_maps import diverging
from numpy_vit.views.report import learned


def decoded(page):
    (image,) = page.named("img")
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(image.attributes["src"].partition(",")[2]))))


def test_tiles_stand_where_they_should_with_clear_gaps():
    tiles = np.arange(2 * 3 * 2 * 2 * 3, dtype=np.uint8).reshape(2, 3, 2, 2, 3)
    sheet = learned.mosaic(tiles, (24, 24))
    assert sheet.shape == (2 * 26 - 2, 3 * 26 - 2, 4)
    np.testing.assert_array_equal(sheet[26 + 13, 2 * 26 + 1, :3], tiles[1, 2, 1, 0])
    assert sheet[24, :, 3].max() == sheet[:, 25, 3].max() == 0
    assert (sheet[:24, :24, 3] == 255).all()


def test_positions_are_the_similarities(small, read):
    made = small()
    page = read(learned.positions(made.params, made.config))
    alike = position_maps.similarities(position_maps.rows(made.params, made.config), (4, 3))
    picture = decoded(page)
    down, across = (np.flatnonzero(np.diff(edge.astype(int)) > 0) + 1 for edge in (picture[:, 0, 3], picture[0, :, 3]))
    for y, x in ((1, 1), (1, 2), (3, 1)):  # where tiles begin: behind a gap
        tile = picture[down[y - 1], across[x - 1], :3]
        np.testing.assert_array_equal(tile, diverging(alike[y, x, 0, 0]))
    assert f"{position_maps.nearness(alike):.2f}".replace("-", "−") in page.root.text()


def test_a_model_without_positions_says_so(small):
    made = small(pos_embed="none")
    assert "no position table" in learned.positions(made.params, made.config)


@pytest.mark.parametrize("fields", [{}, {"in_chans": 1, "embed_dim": 8}, {"in_chans": 4}])
def test_filters_are_drawn(small, read, fields):
    page = read(learned.filters(small(**fields).params))
    assert "variance" in page.root.text()
    assert decoded(page)[..., 3].max() == 255
