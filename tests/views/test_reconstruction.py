"""The picture of reconstructions: each tile shows the pixels that it should, grey where patches were removed."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from numpy_vit.data.preprocessing import Preprocessing
from numpy_vit.models import mae, vit
from numpy_vit.views import reconstruction
from numpy_vit.views.reconstruction import GAP, LEFT, TOP


def example(in_chans=3, norm_pix_loss=False, image_size=(12, 20)):
    config = mae.Config(
        vit.Config(
            image_size=image_size, patch_size=(4, 5), in_chans=in_chans, num_classes=0, embed_dim=8, depth=1,
            num_heads=2, pos_embed="sincos_2d_mae",
        ),
        decoder_embed_dim=8, decoder_depth=1, norm_pix_loss=norm_pix_loss,
    )  # fmt: skip
    rng = np.random.default_rng(0)
    mean, std = (0.5, 0.4, 0.3)[:in_chans], (0.2, 0.25, 0.3)[:in_chans]
    pixels = rng.integers(0, 256, (2, in_chans, *config.encoder.image))
    images = (pixels / 255 - np.reshape(mean, (-1, 1, 1))) / np.reshape(std, (-1, 1, 1))
    mask = mae.random_masking.orders(rng.random((2, config.encoder.num_patches)))[1] >= config.num_visible
    prediction = rng.standard_normal((*mask.shape, config.patch_pixels))
    return config, images.astype(np.float32), pixels, prediction.astype(np.float32), mask, mean, std


def tile(picture, row, column, height, width):
    scale = max(1, reconstruction.SIDE // max(height, width))
    top, left = TOP + row * (scale * height + GAP), LEFT + column * (scale * width + GAP)
    whole = np.asarray(picture)[top : top + scale * height, left : left + scale * width]
    small = whole[::scale, ::scale]
    assert (whole == small.repeat(scale, axis=0).repeat(scale, axis=1)).all()  # enlarged without blurring
    return small


@pytest.mark.parametrize("in_chans", [1, 3])
@pytest.mark.parametrize("image_size", [(12, 20), (132, 140)])
def test_the_tiles(in_chans, image_size):
    config, images, pixels, prediction, mask, mean, std = example(in_chans, image_size=image_size)
    picture = reconstruction.picture(images, prediction, mask, config, mean, std, "a title")
    assert picture.mode == "RGB"
    (Y, X), (py, px) = config.encoder.image, config.encoder.patch
    for b in range(2):
        original, masked, completed = (tile(picture, row, b, Y, X) for row in range(3))
        expected = np.broadcast_to(pixels[b].transpose(1, 2, 0), (Y, X, 3))
        np.testing.assert_array_equal(original, expected)
        for n, removed in enumerate(mask[b]):
            y, x = n // (X // px) * py, n % (X // px) * px
            patch = (slice(y, y + py), slice(x, x + px))
            if removed:
                assert (masked[patch] == 128).all()
                predicted = prediction[b, n].reshape(py, px, in_chans) * std + mean
                np.testing.assert_allclose(completed[patch], np.clip(255 * predicted, 0, 255) + 0 * expected[patch],
                                           atol=0.51)  # fmt: skip
            else:
                np.testing.assert_array_equal(masked[patch], expected[patch])
                np.testing.assert_array_equal(completed[patch], expected[patch])


def test_a_right_normalised_prediction_gives_the_original_back():
    config, images, pixels, _, mask, mean, std = example(norm_pix_loss=True)
    patches = mae.patches_of(images, config)
    target = (patches - patches.mean(-1, keepdims=True)) / np.sqrt(patches.var(-1, keepdims=True, ddof=1) + 1e-6)
    picture = reconstruction.picture(images, target, mask, config, mean, std)
    np.testing.assert_array_equal(tile(picture, 2, 1, 12, 20), pixels[1].transpose(1, 2, 0))
    flat = reconstruction.picture(images, 0 * target, mask, config, mean, std)
    assert (tile(flat, 2, 1, 12, 20) != tile(picture, 2, 1, 12, 20)).any()


def ink(picture, box):
    return int((np.asarray(picture.crop(box)) < 200).any(axis=-1).sum())


def test_captions_and_title():
    config, images, _, prediction, mask, mean, std = example()
    plain = reconstruction.picture(images, prediction, mask, config, mean, std)
    titled = reconstruction.picture(images, prediction, mask, config, mean, std, "what it makes of 3 patches")
    assert plain.size == titled.size
    assert ink(plain, (0, 0, plain.width, TOP)) == 0
    assert ink(titled, (0, 0, plain.width, TOP)) > 50
    rows = (plain.height - TOP - reconstruction.BOTTOM) // 3
    for row in range(3):
        assert ink(plain, (0, TOP + row * rows, LEFT - 1, TOP + (row + 1) * rows)) > 50
    foot = (0, plain.height - reconstruction.BOTTOM + 4, plain.width, plain.height)
    normalised, *_ = example(norm_pix_loss=True)
    borrowing = reconstruction.picture(images, prediction, mask, normalised, mean, std)
    assert ink(borrowing, foot) > ink(plain, foot) > 50  # it says whose brightness that is


def test_a_diverged_model_does_not_stop_the_picture():
    config, images, _, prediction, mask, mean, std = example()
    prediction[0], prediction[1] = np.nan, np.inf
    picture = reconstruction.picture(images, prediction, mask, config, mean, std)
    assert {tuple(tile(picture, 2, b, 12, 20)[0, 0]) for b in range(2) if mask[b, 0]} <= {(0, 0, 0), (255, 255, 255)}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_file_is_the_picture_of_what_the_model_makes(dtype, tmp_path):
    config, _, pixels, _, _, mean, std = example(norm_pix_loss=True)
    params = mae.init(config, np.random.default_rng(1), dtype)
    noise = np.random.default_rng(2).random((2, config.encoder.num_patches))
    preprocessing = Preprocessing(config.encoder.image, 3, mean, std)
    path = tmp_path / "reconstruction.png"
    reconstruction.draw(params, pixels.astype(np.uint8), config, noise, preprocessing, path, "a title")
    with Image.open(path) as image:
        assert image.format == "PNG"
        shown = np.asarray(image)
    images = preprocessing.apply(pixels.astype(np.uint8), dtype)
    prediction, mask = mae.reconstruct(params, images, config, noise)
    expected = reconstruction.picture(images, prediction, mask, config, mean, std, "a title")
    np.testing.assert_array_equal(shown, np.asarray(expected))
    assert [entry.name for entry in tmp_path.iterdir()] == ["reconstruction.png"]
    np.testing.assert_array_equal(tile(expected, 0, 0, 12, 20), pixels[0].transpose(1, 2, 0))


def test_a_failure_leaves_the_old_file(tmp_path, monkeypatch):
    config, _, pixels, _, _, mean, std = example()
    path = tmp_path / "reconstruction.png"
    path.write_bytes(b"the old one")

    def fail(self, file, **options):
        file.write(b"half a picture")
        raise OSError("disk full")

    monkeypatch.setattr(Image.Image, "save", fail)
    noise = np.random.default_rng(2).random((2, config.encoder.num_patches))
    params = mae.init(config, np.random.default_rng(1))
    preprocessing = Preprocessing(config.encoder.image, 3, mean, std)
    with pytest.raises(OSError, match="disk full"):
        reconstruction.draw(params, pixels.astype(np.uint8), config, noise, preprocessing, path)
    assert path.read_bytes() == b"the old one"
    assert [entry.name for entry in tmp_path.iterdir()] == ["reconstruction.png"]


def test_what_cannot_be_shown():
    config, images, _, prediction, mask, mean, std = example()
    with pytest.raises(ValueError, match=r"\(2, 3, 12, 20\) with 1 means and 3 deviations cannot be shown"):
        reconstruction.picture(images, prediction, mask, config, mean[:1], std)
    with pytest.raises(ValueError, match="cannot be shown: choose one image or more"):
        reconstruction.picture(images[:0], prediction[:0], mask[:0], config, mean, std)
    with pytest.raises(ValueError, match="grey or RGB"):
        reconstruction.picture(images[:, :2], prediction, mask, config, mean[:2], std[:2])
