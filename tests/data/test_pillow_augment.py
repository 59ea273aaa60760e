"""The way to Pillow and back, and names of policies."""

import numpy as np
import pytest
from PIL import Image

from numpy_vit.data.pillow_augment import auto_augment, through_pillow
from numpy_vit.data.rand_augment import RandAugment
from numpy_vit.data.three_augment import ThreeAugment


@pytest.mark.parametrize("channels", [1, 3])
def test_pictures_are_the_images(channels):
    images = np.random.default_rng(0).integers(0, 256, (4, channels, 5, 7), np.uint8)
    seen = []

    def look(picture):
        seen.append(picture)
        return picture

    def mirror(picture):
        return picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)

    def invert(picture):
        return picture.point([255 - value for value in range(256)] * channels)

    before = images.copy()
    result = through_pillow(images, [[look], [], [mirror, invert], [look]])
    np.testing.assert_array_equal(images, before)
    assert result.flags.c_contiguous
    np.testing.assert_array_equal(result[[0, 1, 3]], images[[0, 1, 3]])
    np.testing.assert_array_equal(result[2], 255 - images[2, :, :, ::-1])
    assert [(picture.mode, picture.size) for picture in seen] == [("L" if channels == 1 else "RGB", (7, 5))] * 2
    pixel = seen[1].getpixel((6, 2))
    assert (pixel if channels == 3 else (pixel,)) == tuple(images[3, :, 2, 6].tolist())
    np.testing.assert_array_equal(through_pillow(images[:, :, ::-1], [[look]] * 4), images[:, :, ::-1])


@pytest.mark.parametrize("channels", [2, 4])
def test_other_channels_are_refused(channels):
    with pytest.raises(ValueError, match=f"1 or 3 channels, not {channels}"):
        through_pillow(np.zeros((1, channels, 5, 5), np.uint8), [[]])


def test_names():
    bicubic = (Image.Resampling.BICUBIC,)
    assert auto_augment("3a", (1, 2, 3), bicubic) == ThreeAugment()
    assert auto_augment("rand-m3-n1", (9,), bicubic) == RandAugment(3, 1, fill=(9,), resampling=bicubic)
    for name in ("", "3a-mstd0.5", "v0", "augmix-m3", "random"):
        with pytest.raises(ValueError, match=rf"'3a' or like 'rand-.*not '{name}'"):
            auto_augment(name, (9,), bicubic)
    with pytest.raises(ValueError, match="'w1'"):
        auto_augment("rand-m3-w1", (9,), bicubic)
