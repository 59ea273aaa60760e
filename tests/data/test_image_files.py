"""Image files of every mode become the colours that Pillow says, and broken ones a line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from numpy_vit.data.image_files import read_image, read_upright, upright_size
from numpy_vit.errors import DataError

RGB = np.random.default_rng(0).integers(0, 256, (9, 7, 3), np.uint8)
GREY = RGB[..., 0]


def read(picture: Image.Image, folder: Path, channels: int = 3, suffix: str = ".png", **options: object) -> np.ndarray:
    path = folder / f"picture{suffix}"
    picture.save(path, **options)
    return np.asarray(read_image(path, channels))


def test_colours_and_greys(tmp_path: Path) -> None:
    np.testing.assert_array_equal(read(Image.fromarray(RGB), tmp_path), RGB)
    np.testing.assert_array_equal(read(Image.fromarray(GREY), tmp_path), np.repeat(GREY[..., None], 3, axis=2))
    np.testing.assert_array_equal(read(Image.fromarray(GREY), tmp_path, 1), GREY)
    luminance = read(Image.fromarray(RGB), tmp_path, 1).astype(float)
    assert np.abs(luminance - RGB @ [0.299, 0.587, 0.114]).max() < 1


def test_alpha_is_dropped(tmp_path: Path) -> None:
    alpha = np.random.default_rng(1).integers(0, 256, (9, 7, 1), np.uint8)
    np.testing.assert_array_equal(read(Image.fromarray(np.concatenate([RGB, alpha], 2)), tmp_path), RGB)
    with_alpha = Image.fromarray(np.concatenate([GREY[..., None], alpha], 2), "LA")
    np.testing.assert_array_equal(read(with_alpha, tmp_path, 1), GREY)


@pytest.mark.parametrize("transparency", [None, 3, bytes(range(0, 256, 16))])
def test_palettes_are_looked_up(tmp_path: Path, transparency: object) -> None:
    palette = np.random.default_rng(2).integers(0, 256, (16, 3), np.uint8)
    picture = Image.fromarray(GREY % 16, "L")
    picture.putpalette(palette.tobytes())
    options = {} if transparency is None else {"transparency": transparency}
    np.testing.assert_array_equal(read(picture, tmp_path, **options), palette[GREY % 16])


def test_black_and_white_and_cmyk(tmp_path: Path) -> None:
    bits = Image.fromarray(GREY > 128)
    np.testing.assert_array_equal(read(bits, tmp_path, 1), np.where(GREY > 128, 255, 0))
    cmyk = Image.fromarray(RGB).convert("CMYK")
    np.testing.assert_array_equal(read(cmyk, tmp_path, suffix=".tif"), np.asarray(cmyk.convert("RGB")))


@pytest.mark.parametrize("suffix", [".png", ".tif"])
def test_16_bits_keep_the_high_byte(tmp_path: Path, suffix: str) -> None:
    low = np.random.default_rng(3).integers(0, 256, GREY.shape, np.uint16)
    picture = Image.fromarray(GREY.astype(np.uint16) * 256 + low)
    np.testing.assert_array_equal(read(picture, tmp_path, 1, suffix), GREY)


def test_exif_does_not_turn_the_picture(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was held upright
    assert read(Image.fromarray(RGB), tmp_path, suffix=".jpg", exif=exif).shape == RGB.shape


TURNS = {  # EXIF 2.3, orientation: which side of the scene the first row and the first column are
    1: lambda x: x,
    2: lambda x: x[:, ::-1],
    3: lambda x: x[::-1, ::-1],
    4: lambda x: x[::-1],
    5: lambda x: x.transpose(1, 0, 2),
    6: lambda x: np.rot90(x, -1),
    7: lambda x: x[::-1, ::-1].transpose(1, 0, 2),
    8: lambda x: np.rot90(x),
}


@pytest.mark.parametrize("orientation", TURNS)
@pytest.mark.parametrize("suffix", [".png", ".tif", ".webp"])
def test_upright_photographs(tmp_path: Path, suffix: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / f"held{suffix}"
    Image.fromarray(RGB).save(path, exif=exif, **({"lossless": True} if suffix == ".webp" else {}))
    expected = TURNS[orientation](RGB)
    np.testing.assert_array_equal(read_upright(path), expected)
    assert upright_size(path) == expected.shape[:2]


def test_upright_jpegs_and_damaged_exif(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    path = tmp_path / "held.jpg"
    Image.fromarray(RGB).save(path, exif=exif)
    assert upright_size(path) == (7, 9)
    np.testing.assert_array_equal(read_upright(path), np.rot90(np.asarray(read_image(path)), -1))
    path.write_bytes(path.read_bytes().replace(b"Exif\0\0MM", b"Exif\0\0XX").replace(b"Exif\0\0II", b"Exif\0\0XX"))
    assert upright_size(path) == (9, 7)
    assert np.asarray(read_upright(path)).shape == (9, 7, 3)


def test_upright_keeps_the_rules_of_read_image(tmp_path: Path) -> None:
    low = np.random.default_rng(3).integers(0, 256, GREY.shape, np.uint16)
    palette = Image.fromarray(GREY % 16, "L")
    palette.putpalette(bytes(range(48)))
    pictures = {
        "grey16.png": Image.fromarray(GREY.astype(np.uint16) * 256 + low),
        "palette.png": palette,
        "cmyk.tif": Image.fromarray(RGB).convert("CMYK"),
        "alpha.png": Image.fromarray(np.dstack([RGB, GREY])),
    }
    for name, picture in pictures.items():
        picture.save(tmp_path / name)
        np.testing.assert_array_equal(read_upright(tmp_path / name), read_image(tmp_path / name), err_msg=name)


def test_several_pictures_in_one_file_are_the_first(tmp_path: Path) -> None:
    first, second = Image.fromarray(RGB), Image.new("RGB", (7, 9))
    for name in ("both.mpo", "both.gif"):  # of a stereo camera, and an animation under a name that web pages gave it
        first.save(tmp_path / name, save_all=True, append_images=[second])
        path = (tmp_path / name).rename(tmp_path / f"{name}.jpg")
        assert upright_size(path) == (9, 7)
        np.testing.assert_array_equal(read_upright(path), read_image(path))
        assert np.asarray(read_upright(path)).any()


def test_formats_that_start_programs_and_bombs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Image.fromarray(RGB).save(tmp_path / "script.eps")
    (tmp_path / "script.eps").rename(tmp_path / "script.jpg")
    Image.fromarray(RGB).save(tmp_path / "bomb.bmp")
    for read in (read_upright, upright_size):
        with pytest.raises(DataError, match=r"script.jpg: .*no image format that this data set takes"):
            read(tmp_path / "script.jpg")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 30)
    for read in (read_upright, upright_size):
        with pytest.raises(DataError, match="exceeds limit of"):  # 63 pixels: more than twice, which Pillow refuses
            read(tmp_path / "bomb.bmp")


def test_what_is_no_image_is_named_in_a_line(tmp_path: Path) -> None:
    whole = tmp_path / "whole.png"
    Image.fromarray(RGB).save(whole)
    data = whole.read_bytes()
    broken = {"cut.png": data[:-30], "text.png": b"hello", "empty.png": b"", "flipped.png": data[:45] + b"\xff" * 60}
    for name, content in broken.items():
        (tmp_path / name).write_bytes(content)
    Image.fromarray(GREY.astype(np.float32)).save(tmp_path / "float.tif")
    for name in [*broken, "float.tif", "missing.png", "."]:
        with pytest.raises(DataError) as caught:
            read_image(tmp_path / name)
        assert str(tmp_path / name) in str(caught.value)
        assert "\n" not in str(caught.value)


def test_other_channels_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not 4"):
        read_image(tmp_path / "a.png", 4)
