"""Maps as pictures: colours at known values, and what an overlay keeps of the image."""

from __future__ import annotations

import numpy as np

from numpy_vit.views import attention_picture, colour_maps, heat_maps
from numpy_vit.views.tiles import Sheet, drawn_size


def lightness(colours):
    """Relative luminance of sRGB bytes (IEC 61966-2-1)."""
    values = np.asarray(colours) / 255
    linear = np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)
    return linear @ (0.2126, 0.7152, 0.0722)


def test_colours_at_the_ends_and_rising_lightness():
    found = colour_maps.sequential(np.array([0.0, 1.0, 1.5, -1.0]))
    np.testing.assert_array_equal(
        found, [(0x44, 0x01, 0x54), (0xFD, 0xE7, 0x25), (0xFD, 0xE7, 0x25), (0x44, 0x01, 0x54)]
    )
    assert (np.diff(lightness(colour_maps.sequential(np.linspace(0, 1, 50)))) > 0).all()  # also without colours
    two_sided = colour_maps.diverging(np.array([-1.0, 0.0, 1.0]))
    np.testing.assert_array_equal(two_sided, [(0x00, 0x72, 0xB2), (0xF2, 0xF2, 0xF2), (0xD5, 0x5E, 0x00)])


def test_shown_undoes_the_normalisation():
    pixels = np.random.default_rng(0).integers(0, 256, (3, 4, 5))
    mean, std = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)
    image = (pixels / 255 - np.reshape(mean, (3, 1, 1))) / np.reshape(std, (3, 1, 1))
    np.testing.assert_array_equal(heat_maps.shown(image.astype(np.float32), mean, std), pixels.transpose(1, 2, 0))
    grey = heat_maps.shown(np.zeros((1, 2, 2)), (0.5,), (1.0,))
    np.testing.assert_array_equal(grey, np.full((2, 2, 3), 128))


def test_the_hottest_patch_is_yellow_alone_and_brightest_over_the_image():
    heat = np.array([[0.1, 0.2, 0.1], [0.1, 0.1, 0.8]])
    alone = heat_maps.raw(heat, (8, 12))
    np.testing.assert_array_equal(alone[4:, 8:], np.broadcast_to((0xFD, 0xE7, 0x25), (4, 4, 3)))
    over = heat_maps.overlay(heat, np.full((8, 12, 3), 100, np.uint8))
    patches = lightness(over).reshape(2, 4, 3, 4).mean(axis=(1, 3))
    assert patches.argmax() == heat.argmax()
    image = np.zeros((8, 12, 3), np.uint8)
    image[:, 6:] = 255
    flat = heat_maps.overlay(np.ones((2, 3)), image)
    assert lightness(flat[0, 11]) > lightness(flat[0, 0])  # the image can still be seen
    assert (heat_maps.raw(np.zeros((2, 3)), (2, 3)) == (0x44, 0x01, 0x54)).all()


def test_signed_maps_have_both_colours():
    heat = np.zeros((10, 10))
    heat[0, 0], heat[9, 9], heat[5] = 1.0, -1.0, 0.5
    found = heat_maps.signed(heat, (10, 10))
    np.testing.assert_array_equal(found[0, 0], (0xD5, 0x5E, 0x00))
    np.testing.assert_array_equal(found[9, 9], (0x00, 0x72, 0xB2))
    np.testing.assert_array_equal(found[3, 3], (0xF2, 0xF2, 0xF2))
    assert (heat_maps.signed(np.zeros((2, 2)), (2, 2)) == 0xF2).all()


def test_a_grid_of_blocks_and_heads_with_the_mean():
    maps = np.full((2, 3, 2, 2), 0.1)
    maps[1, 2, 0, 1] = 0.7
    image = np.zeros((8, 8, 3), np.uint8)
    tile = 96
    picture = np.asarray(attention_picture.heads_alone(maps, (8, 8), "a title"))
    yellow = (picture == (0xFD, 0xE7, 0x25)).all(axis=-1)
    # every flat map is yellow all over; of block 1's head 2 a quarter is, and of its mean as well
    assert yellow.sum() == 6 * tile**2 + 2 * tile**2 // 4
    assert attention_picture.heads_over_image(maps, image, "a title").size == picture.shape[1::-1]
    assert attention_picture.single(maps[1, 2], image, "rollout", "a title").width > 3 * 256


def test_sheets_put_pictures_where_their_names_are():
    red, blue = np.zeros((4, 4, 3), np.uint8), np.zeros((4, 4, 3), np.uint8)
    red[..., 0], blue[..., 2] = 255, 255
    picture = np.asarray(Sheet((8, 8), ["a", "b"], ["one", "two"], "t").finish([[red, blue], [blue, red]]), int)
    reds = np.argwhere((picture == (255, 0, 0)).all(axis=-1))
    assert len(reds) == 2 * 64
    (y0, x0), (y1, x1) = reds[0], reds[-1]
    assert y1 > y0 and x1 > x0  # the diagonal
    assert drawn_size((10, 20), 96) == (40, 80)
    assert drawn_size((300, 150), 96) == (96, 48)
