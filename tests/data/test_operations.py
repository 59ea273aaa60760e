"""Operations on pictures against closed forms, timm's and torchvision's."""

import numpy as np
import pytest
from PIL import Image

from numpy_vit.data import operations

BICUBIC, BILINEAR = Image.Resampling.BICUBIC, Image.Resampling.BILINEAR


def every_byte(channels):
    values = np.arange(256, dtype=np.uint8).reshape(16, 16)
    return Image.fromarray(values if channels == 1 else np.stack([values, values[::-1], values.T], -1))


def values(picture):
    return np.asarray(picture).astype(int)


@pytest.mark.parametrize("channels", [1, 3])
def test_maps_of_values_are_their_formulas(channels):
    picture = every_byte(channels)
    v = values(picture)
    np.testing.assert_array_equal(values(operations.invert(picture)), 255 - v)
    np.testing.assert_array_equal(values(operations.solarize(picture)), np.where(v < 128, v, 255 - v))
    np.testing.assert_array_equal(values(operations.solarize(picture, 256)), v)
    np.testing.assert_array_equal(values(operations.solarize_add(picture, 99)), np.where(v < 128, v + 99, v))
    np.testing.assert_array_equal(values(operations.auto_contrast(picture)), v)  # all of 0 ... 255 is there already
    np.testing.assert_array_equal(values(operations.equalize(picture)), v)
    for bits in range(-2, 10):
        kept = 2 ** (8 - min(8, max(0, bits)))
        np.testing.assert_array_equal(values(operations.posterize(picture, bits)), v // kept * kept)
    assert operations.posterize(picture, 3).mode == picture.mode


@pytest.mark.parametrize("name", ["saturation", "contrast", "brightness", "sharpness"])
@pytest.mark.parametrize("channels", [1, 3])
def test_an_enhancement_by_one_changes_nothing(name, channels, picture_of):
    picture = picture_of(channels=channels)
    np.testing.assert_array_equal(values(getattr(operations, name)(picture, 1.0)), values(picture))


def test_what_nothing_of_an_enhancement_leaves(picture_of):
    picture = picture_of()
    assert not values(operations.brightness(picture, 0.0)).any()
    grey = values(picture.convert("L"))
    np.testing.assert_array_equal(values(operations.contrast(picture, 0.0)), np.full((32, 32, 3), round(grey.mean())))
    np.testing.assert_array_equal(values(operations.saturation(picture, 0.0)), np.stack([grey] * 3, -1))


def test_greys_keep_saturation_and_hue(picture_of):
    picture = picture_of(channels=1)
    for changed in (operations.saturation(picture, 0.1), operations.saturation(picture, 3), operations.hue(picture, 1)):
        assert changed.mode == "L"
        np.testing.assert_array_equal(values(changed), values(picture))


def test_a_third_of_a_turn_makes_red_green():
    red = Image.new("RGB", (2, 2), (200, 0, 0))
    assert operations.hue(red, 1 / 3).getpixel((0, 0)) == (0, 200, 0)
    # a circle of 256 steps, turned by a third of 255 of them
    assert np.abs(np.subtract(operations.hue(red, -1 / 3).getpixel((0, 0)), (0, 0, 200))).max() <= 6


@pytest.mark.parametrize("resample", [BILINEAR, BICUBIC])
@pytest.mark.parametrize("channels", [1, 3])
def test_whole_moves_are_exact_and_bring_in_the_fill(channels, resample, picture_of):
    picture = picture_of(10, 20, channels)
    fill = (7, 8, 9)[:channels]
    before, brought = values(picture), fill[0] if channels == 1 else fill
    left = values(operations.translate_x(picture, 0.1, resample, fill))
    np.testing.assert_array_equal(left[:, :-2], before[:, 2:])
    np.testing.assert_array_equal(left[:, -2:], np.broadcast_to(brought, left[:, -2:].shape))
    down = values(operations.translate_y(picture, -0.1, resample, fill))
    np.testing.assert_array_equal(down[1:], before[:-1])
    np.testing.assert_array_equal(down[:1], np.broadcast_to(brought, down[:1].shape))
    for same in ("rotate", "shear_x", "shear_y", "translate_x"):
        np.testing.assert_array_equal(values(getattr(operations, same)(picture, 0.0, resample, fill)), before)
    half = values(operations.rotate(picture, 180, resample, fill))
    np.testing.assert_array_equal(half, before[::-1, ::-1])


def test_a_shear_moves_rows_by_their_distance():
    stripe = np.zeros((9, 9), np.uint8)
    stripe[:, 4] = 255
    sheared = values(operations.shear_x(Image.fromarray(stripe), 0.5, BILINEAR, (0,)))
    centres = sheared @ np.arange(9) / sheared.sum(1)
    # Pillow maps corners: row y's centre, y + 0.5 from the edge, comes from (y + 0.5) / 2 further right
    np.testing.assert_allclose(centres[:8], 4 - (np.arange(8) + 0.5) / 2, atol=0.01)
    turned = values(operations.shear_y(Image.fromarray(stripe.T), 0.5, BILINEAR, (0,)))
    np.testing.assert_array_equal(turned, sheared.T)


def test_pictures_are_not_written_to(picture_of):
    picture = picture_of()
    before = values(picture)
    for change in (operations.auto_contrast, operations.equalize, operations.invert, operations.solarize):
        change(picture)
    operations.rotate(picture, 12.0, BICUBIC, (0, 0, 0))
    operations.blur(picture, 1.0)
    np.testing.assert_array_equal(values(picture), before)


@pytest.mark.framework
@pytest.mark.parametrize("channels", [1, 3])
def test_jitter_is_torchvisions(channels, picture_of):
    functional = pytest.importorskip("torchvision.transforms.functional")
    picture = picture_of(19, 27, channels)
    for factor in (0.0, 0.3, 0.77, 1.0, 1.4, 2.0):
        for name in ("brightness", "contrast", "saturation", "sharpness"):
            expected = getattr(functional, f"adjust_{name}")(picture, factor)
            assert getattr(operations, name)(picture, factor).tobytes() == expected.tobytes()
    for turn in (-0.5, -0.31, -0.002, 0.0, 0.1, 0.499, 0.5):
        assert operations.hue(picture, turn).tobytes() == functional.adjust_hue(picture, turn).tobytes()
    if channels == 3:
        grey = functional.to_grayscale(picture, 3)
        assert operations.saturation(picture, 0.0).tobytes() == grey.tobytes()
