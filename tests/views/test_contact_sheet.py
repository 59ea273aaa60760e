"""Images come to lie in rows, unchanged where they are enlarged, with their words below."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from numpy_vit.views.contact_sheet import SIDE, draw, picture


def noise(count: int, channels: int = 3, height: int = 8, width: int = 8) -> np.ndarray:
    return np.random.default_rng(count).integers(0, 256, (count, channels, height, width), np.uint8)


def places(sheet: np.ndarray, image: np.ndarray) -> list[tuple[int, int]]:
    """Return where an image (Y, X, 3) is on the sheet, to the pixel."""
    found = []
    height, width = image.shape[:2]
    for y, x in np.argwhere((sheet == image[0, 0]).all(axis=-1)):
        part = sheet[y : y + height, x : x + width]
        if part.shape == image.shape and (part == image).all():
            found.append((int(y), int(x)))
    return found


@pytest.mark.parametrize("channels", [1, 3])
def test_small_images_are_enlarged_pixel_by_pixel_row_by_row(channels: int) -> None:
    images = noise(5, channels)
    sheet = np.asarray(picture(images, ["a"] * 5, columns=3, title="toys"))
    times = SIDE // 8
    expected = np.repeat(np.repeat(np.broadcast_to(images, (5, 3, 8, 8)), times, 2), times, 3).transpose(0, 2, 3, 1)
    corners = [places(sheet, image) for image in expected]
    assert all(len(found) == 1 for found in corners)
    rows, columns = ([found[0][axis] for found in corners] for axis in (0, 1))
    assert rows[0] == rows[1] == rows[2] < rows[3] == rows[4]
    assert columns[0] == columns[3] < columns[1] == columns[4] < columns[2]
    assert rows[3] - rows[0] >= SIDE + 12  # the words' place
    words = sheet[rows[0] + SIDE : rows[3], columns[0] : columns[0] + SIDE]
    assert (words.min(axis=-1) < 128).any()
    assert (sheet[: rows[0]].min(axis=-1) < 128).any()  # the title


def test_large_images_shrink_and_keep_their_shape() -> None:
    images = np.zeros((1, 3, 300, 150), np.uint8)
    sheet = np.asarray(picture(images, [""]))
    rows, columns = np.nonzero((sheet == 0).all(axis=-1))
    assert rows.max() - rows.min() + 1 == SIDE
    assert columns.max() - columns.min() + 1 == SIDE // 2


def test_long_words_do_not_reach_the_neighbour() -> None:
    images = np.full((2, 1, 8, 8), 255, np.uint8)
    sheet = np.asarray(picture(images, ["a very long name of a class " * 9, ""], columns=2))
    dark = np.nonzero(sheet.min(axis=(0, 2)) < 128)[0]
    assert dark.max() < 16 + SIDE + 10


def test_the_file_is_the_picture(tmp_path: Path) -> None:
    draw(noise(3), list("abc"), tmp_path / "sheet.png", 2, "t")
    with Image.open(tmp_path / "sheet.png") as opened:
        np.testing.assert_array_equal(opened, picture(noise(3), list("abc"), 2, "t"))


def test_what_cannot_be_shown() -> None:
    for images in (noise(3)[:0], noise(3)[0], noise(3, 2)):
        with pytest.raises(ValueError, match="1 or 3 channels"):
            picture(images, ["a"] * len(images))
    with pytest.raises(ValueError, match="3 images need as many words"):
        picture(noise(3), ["a"])
    with pytest.raises(ValueError, match="at least 1 column"):
        picture(noise(3), list("abc"), 0)
