"""The input of a model is torchvision's, to the pixel."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from numpy_vit.data.eval_transform import EvalTransform
from numpy_vit.data.image_files import read_image
from numpy_vit.data.preprocessing import Preprocessing
from numpy_vit.errors import DataError

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
# picture (height, width): up and down, wide and tall, odd differences to the crop, narrower than it
PICTURES = [(300, 451), (451, 300), (97, 131), (33, 20), (224, 224), (5, 61), (1, 1), (249, 248), (256, 257)]
# shorter side, crop
CROPS = [(248, 224), (256, 224), (224, 224), (64, 37), (37, 64), (33, 32)]


def shorter(resize: int, size: int, resample: str = "bicubic") -> EvalTransform:
    return EvalTransform((size, size), (resize, resize), False, resample, MEAN, STD)


def picture_of(height: int, width: int, channels: int = 3) -> Image.Image:
    pixels = np.random.default_rng(height * width).integers(0, 256, (height, width, channels), np.uint8)
    return Image.fromarray(pixels[..., 0] if channels == 1 else pixels)


def photos() -> list[Path]:
    folder = Path(os.environ.get("NUMPY_VIT_REAL", "nowhere")) / "photos"
    return sorted(folder.glob("*.*")) if folder.is_dir() else []


def reference(transform: EvalTransform, picture: Image.Image) -> tuple[Any, Any]:
    """Return torchvision's pixels and its normalised input."""
    transforms = pytest.importorskip("torchvision.transforms")
    to = list(transform.resize) if transform.squash else transform.resize[0]
    mode = transforms.InterpolationMode(transform.resample)
    steps = [transforms.Resize(to, mode), transforms.CenterCrop(transform.size), transforms.ToTensor()]
    unit = transforms.Compose(steps)(picture)
    return (unit * 255).round().numpy(), transforms.Normalize(transform.mean, transform.std)(unit).numpy()


def assert_same(transform: EvalTransform, picture: Image.Image) -> None:
    pixels, normalised = reference(transform, picture)
    ours = np.asarray(transform.crop(picture))
    np.testing.assert_array_equal(ours.reshape(*ours.shape[:2], -1).transpose(2, 0, 1), pixels)
    np.testing.assert_allclose(transform.apply(picture)[0], normalised, rtol=0, atol=1e-6)


@pytest.mark.framework
@pytest.mark.parametrize("resample", ["bicubic", "bilinear", "lanczos", "nearest"])
@pytest.mark.parametrize("crop", CROPS, ids=str)
def test_shorter_side_and_crop_are_torchvisions(crop: tuple[int, int], resample: str) -> None:
    for height, width in PICTURES:
        assert_same(shorter(*crop, resample), picture_of(height, width))


@pytest.mark.framework
@pytest.mark.parametrize("resample", ["bicubic", "bilinear"])
@pytest.mark.parametrize(("resize", "size"), [((224, 224), (224, 224)), ((256, 256), (224, 224)), ((40, 71), (40, 71))])
def test_squash_is_torchvisions(resize: tuple[int, int], size: tuple[int, int], resample: str) -> None:
    for height, width in PICTURES:
        assert_same(EvalTransform(size, resize, True, resample, MEAN, STD), picture_of(height, width))


@pytest.mark.framework
def test_photos_and_greys_are_torchvisions() -> None:
    for path in photos():
        for transform in (shorter(248, 224), shorter(384, 384), shorter(256, 224, "bilinear")):
            assert_same(transform, read_image(path))
        assert_same(replace(shorter(248, 224), squash=True), read_image(path))
    assert_same(shorter(31, 28).for_channels(1), picture_of(50, 70, 1))


@pytest.mark.framework
@pytest.mark.parametrize("size", [(112, 160), (160, 112), (33, 47)], ids=str)
def test_other_sides_are_timms(size: tuple[int, int]) -> None:
    factory = pytest.importorskip("timm.data.transforms_factory")
    theirs = factory.transforms_imagenet_eval((size[0], size[1]), crop_pct=0.9, interpolation="bicubic")
    steps = [step for step in theirs.transforms if not type(step).__name__.endswith(("ToTensor", "Normalize"))]
    ours = EvalTransform(size, (int(size[0] / 0.9), int(size[1] / 0.9)), False, "bicubic", MEAN, STD)
    for height, width in PICTURES:
        if min(height, width) < 5:
            continue  # timm rounds to nothing
        picture = expected = picture_of(height, width)
        for step in steps:
            expected = step(expected)
        np.testing.assert_array_equal(np.asarray(ours.crop(picture)), np.asarray(expected))


@pytest.mark.framework
@pytest.mark.parametrize("size", [(24, 24), (96, 80), (10, 70)], ids=str)
def test_without_antialiasing_it_is_the_bilinear_of_tensors_cut_to_whole_numbers(size: tuple[int, int]) -> None:
    torch = pytest.importorskip("torch")
    picture = picture_of(37, 53)
    tensor = torch.tensor(np.asarray(picture).transpose(2, 0, 1)[None].astype(np.float64))
    wide = torch.nn.functional.interpolate(tensor, size, mode="bilinear", align_corners=False)[0].numpy()
    ours = EvalTransform(size, size, True, "bilinear", MEAN, STD, antialias=False).crop(picture)
    found = np.asarray(ours).transpose(2, 0, 1)
    assert (found == np.floor(wide + 1e-9)).mean() > 0.999
    assert np.abs(found - np.floor(wide)).max() <= 1


def test_a_known_picture() -> None:
    """Without torch: the left half black, the right half white; the crop of 2 out of 4 columns keeps one of each."""
    pixels = np.zeros((4, 8), np.uint8)
    pixels[:, 4:] = 255
    transform = EvalTransform((2, 2), (4, 4), False, "bilinear", (0.5,), (0.25,))
    np.testing.assert_array_equal(transform.apply(Image.fromarray(pixels)), np.full((1, 1, 2, 2), [-2.0, 2.0]))


def test_a_checkpoint_of_ours_takes_pictures_of_its_size_as_they_are() -> None:
    stored = Preprocessing((8, 8), 1, (0.3,), (0.4,))
    pixels = np.random.default_rng(0).integers(0, 256, (1, 1, 8, 8), np.uint8)
    transform = EvalTransform.of_training(stored.to_json())
    np.testing.assert_array_equal(transform.apply(Image.fromarray(pixels[0, 0])), stored.apply(pixels))
    assert transform.apply(picture_of(50, 20, 1)).shape == (1, 1, 8, 8)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(DataError, match="less extreme"):
        shorter(248, 224).crop(Image.new("RGB", (10000, 1)))
    with pytest.raises(DataError, match="1 channels"):
        shorter(248, 224).apply(picture_of(9, 9, 1))
    for wrong in ({"size": (0, 3)}, {"resample": "cubic"}, {"std": (1.0, 0.0, 1.0)}, {"antialias": False}):
        with pytest.raises(ValueError, match=r"must|choose|built"):
            replace(shorter(248, 224), **wrong)


def test_it_says_what_it_does() -> None:
    assert str(shorter(248, 224)).startswith("shorter side to 248 (bicubic), centre 224x224, mean 0.485")
    assert "whatever its shape (bilinear)" in str(replace(shorter(32, 32), squash=True, resample="bilinear"))
