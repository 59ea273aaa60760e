"""Pictures of attention: every tile is the map of its block and head, or of its image, the right way up."""

from __future__ import annotations

import numpy as np
import pytest

from numpy_vit.views import attention_picture

COLD, HOT = np.array((0x44, 0x01, 0x54)), np.array((0xFD, 0xE7, 0x25))  # viridis' ends
SIZE, GRID = (8, 16), (2, 4)


def one_hot(place):
    heat = np.zeros(GRID)
    heat.ravel()[place] = 0.4
    return heat


def expected(place, grey=None):
    """The pixels (8, 16, 3) of a map that is hot at one patch, alone or over an image of one grey."""
    hot = np.kron(one_hot(place) > 0, np.ones((4, 4), bool))[..., None]
    colours = np.where(hot, HOT, COLD)
    return colours if grey is None else (0.4 * grey + 0.6 * colours).round()


def runs(there):
    """Where runs of true begin and end."""
    return np.flatnonzero(np.diff(np.concatenate([[False], there, [False]]).astype(int))).reshape(-1, 2)


def tiles(picture, enlarged):
    """The tiles of a sheet, row by row, each as the (8, 16, 3) that it was before it was enlarged."""
    pixels = np.asarray(picture)
    # words and their columns are smaller than tiles
    rows = [run for run in runs((pixels != 255).any(axis=(1, 2))) if np.diff(run) == SIZE[0] * enlarged]
    found = []
    for top, bottom in rows:
        columns = runs((pixels[top:bottom] != 255).any(axis=(0, 2)))
        columns = [run for run in columns if np.diff(run) == SIZE[1] * enlarged]
        middle = enlarged // 2
        found.append(
            [pixels[top + middle : bottom : enlarged, left + middle : right : enlarged] for left, right in columns]
        )
    return found


@pytest.mark.parametrize("grey", [None, 100])
def test_each_block_and_head_has_its_tile(grey):
    places = [[0, 3, 5], [6, 1, 2]]  # of 2 blocks and 3 heads
    maps = np.array([[one_hot(place) for place in block] for block in places])
    if grey is None:
        picture = attention_picture.heads_alone(maps, SIZE, "a title")
    else:
        picture = attention_picture.heads_over_image(maps, np.full((*SIZE, 3), grey, np.uint8), "a title")
    found = tiles(picture, 6)
    assert [len(row) for row in found] == [4, 4]  # the last one is the heads' mean
    for row, block in zip(found, places, strict=True):
        for tile, place in zip(row[:3], block, strict=True):
            np.testing.assert_array_equal(tile, expected(place, grey))
        together = np.max([expected(place, grey) for place in block], axis=0)
        np.testing.assert_array_equal(row[3][..., :2], together[..., :2])  # red and green rise with heat


def test_a_single_map_stands_beside_its_image():
    image = np.random.default_rng(0).integers(1, 255, (*SIZE, 3), dtype=np.uint8)
    ((shown, over, alone),) = tiles(attention_picture.single(one_hot(6), image, "rollout", "a title"), 16)
    np.testing.assert_array_equal(shown, image)
    np.testing.assert_array_equal(alone, expected(6))
    assert (over[4:, 8:12].astype(int) - over[:4, 8:12]).mean() > 50  # the lower patch of the third column is hot
    assert over.reshape(2, 4, 4, 4, 3).mean(axis=(1, 3))[..., 1].argmax() == 6


def test_each_image_of_a_gallery_has_its_own_maps_below():
    greys, places = [50, 100, 200], {"last block": [0, 3, 5], "rollout": [6, 1, 2]}
    images = [np.full((*SIZE, 3), grey, np.uint8) for grey in greys]
    rows = {name: [one_hot(place) for place in row] for name, row in places.items()}
    found = tiles(attention_picture.gallery(images, rows, ["a", "b", "c"], "a title"), 6)
    assert [len(row) for row in found] == [3, 3, 3]
    for i, grey in enumerate(greys):
        assert (found[0][i] == grey).all()
        for row, each in zip(found[1:], places.values(), strict=True):
            np.testing.assert_array_equal(row[i], expected(each[i], grey))
