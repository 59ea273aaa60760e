"""Boxes of random resized crops: their distribution, and torchvision's and timm's own loops with the same numbers."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from numpy_vit.data.resized_crop import ResizedCrop, draw_box, draw_filter, resized_crop

BICUBIC, BILINEAR = Image.Resampling.BICUBIC, Image.Resampling.BILINEAR
RATIO = (3 / 4, 4 / 3)
SHAPES = [(32, 32), (28, 28), (9, 70), (70, 9), (5, 4), (1, 1), (224, 300)]
SCALES = [(0.08, 1.0), (0.5, 1.0), (1.0, 1.0), (0.001, 0.02)]


def distance_from_uniform(values, low, high):
    """Return Kolmogorov and Smirnov's distance, times the root of the number."""
    ranks = (np.sort(values) - low) / (high - low)
    steps = np.arange(len(values) + 1) / len(values)
    return max(np.abs(ranks - steps[1:]).max(), np.abs(ranks - steps[:-1]).max()) * math.sqrt(len(values))


def test_area_and_log_ratio_are_uniform_and_the_place_too():
    rng = np.random.default_rng(0)
    boxes = np.array([draw_box((3000, 2000), (0.1, 0.3), RATIO, rng) for _ in range(4000)])
    top, left, height, width = boxes.T
    assert distance_from_uniform(height * width / 6e6, 0.1, 0.3) < 1.95  # exceeded once in a thousand times
    assert distance_from_uniform(np.log(width / height), math.log(3 / 4), math.log(4 / 3)) < 1.95
    assert distance_from_uniform(top / (3000 - height), 0, 1) < 1.95
    assert distance_from_uniform(left / (2000 - width), 0, 1) < 1.95
    assert distance_from_uniform(np.sqrt(height * width / 6e6), math.sqrt(0.1), math.sqrt(0.3)) > 1.95


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("scale", SCALES)
def test_boxes_lie_inside(shape, scale):
    rng = np.random.default_rng(1)
    for _ in range(200):
        top, left, height, width = draw_box(shape, scale, RATIO, rng)
        assert 0 <= top <= top + height <= shape[0]
        assert 0 <= left <= left + width <= shape[1]
        assert min(height, width) >= 1


def test_where_nothing_fits_it_is_the_centre():
    rng = np.random.default_rng(0)
    assert draw_box((100, 10), (1.0, 1.0), RATIO, rng) == (43, 0, 13, 10)
    assert draw_box((10, 100), (1.0, 1.0), RATIO, rng) == (0, 43, 10, 13)
    assert draw_box((10, 11), (1.0, 1.0), (1.0, 1.2), rng)[2:] in {(10, 11)}
    assert draw_box((3, 2), (1e-9, 1e-9), RATIO, rng) == (0, 0, 3, 2)  # boxes of no pixels do not fit


def test_the_whole_is_itself_and_a_constant_stays(picture_of):
    picture = picture_of(20, 30)
    assert resized_crop(picture, (0, 0, 20, 30), BICUBIC).tobytes() == picture.tobytes()
    part = resized_crop(Image.new("L", (8, 6), 77), (1, 2, 3, 2), BILINEAR)
    assert part.size == (8, 6)
    assert set(part.getdata() if not hasattr(part, "get_flattened_data") else part.get_flattened_data()) == {77}


def test_filters_come_equally_often():
    rng = np.random.default_rng(0)
    drawn = [draw_filter((BILINEAR, BICUBIC), rng) for _ in range(1000)]
    assert abs(drawn.count(BICUBIC) - 500) < 80  # five standard deviations
    assert set(drawn) == {BILINEAR, BICUBIC}
    change = ResizedCrop((0.5, 1.0), RATIO, (BILINEAR,)).draw((32, 32), rng)
    assert change.keywords["resample"] == BILINEAR


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"scale": (0.0, 1.0)}, r"crop_scale .*\(0.0, 1.0\)"),
        ({"scale": (0.5, 1.1)}, "crop_scale"),
        ({"scale": (0.9, 0.8)}, "crop_scale"),
        ({"scale": (float("nan"), 1.0)}, "crop_scale"),
        ({"ratio": (0.0, 1.0)}, "crop_ratio"),
        ({"ratio": (2.0, 1.0)}, "crop_ratio"),
        ({"ratio": (1.0, math.inf)}, "crop_ratio"),
    ],
)
def test_ranges_that_cannot_be(fields, words):
    with pytest.raises(ValueError, match=words):
        ResizedCrop(**fields)


@pytest.mark.framework
@pytest.mark.parametrize("scale", SCALES)
def test_the_loop_is_torchvisions(scale, monkeypatch):
    transforms = pytest.importorskip("torchvision.transforms.transforms")
    torch = pytest.importorskip("torch")
    for shape in SHAPES:
        for seed in range(60):
            rng = np.random.default_rng(seed)

            def uniform(low, high, rng=rng):
                return torch.tensor(rng.uniform(float(low), float(high)), dtype=torch.float64)

            def randint(low, high, size, rng=rng):
                return torch.tensor(int(rng.integers(low, high)))

            stand_in = SimpleNamespace(
                log=torch.log,
                exp=torch.exp,
                tensor=lambda values: torch.tensor(values, dtype=torch.float64),
                empty=lambda size, uniform=uniform: SimpleNamespace(uniform_=uniform),
                randint=randint,
            )
            with monkeypatch.context() as patch:
                patch.setattr(transforms, "torch", stand_in)
                picture = Image.new("L", shape[::-1])
                expected = transforms.RandomResizedCrop.get_params(picture, list(scale), list(RATIO))
            assert draw_box(shape, scale, RATIO, np.random.default_rng(seed)) == expected


@pytest.mark.framework
@pytest.mark.parametrize("resample", [BILINEAR, BICUBIC])
@pytest.mark.parametrize("channels", [1, 3])
def test_pixels_are_torchvisions(channels, resample, picture_of):
    functional = pytest.importorskip("torchvision.transforms.functional")
    mode = functional.InterpolationMode(resample.name.lower())
    rng = np.random.default_rng(0)
    for shape in ((32, 32), (28, 28), (37, 21), (64, 96)):
        picture = picture_of(*shape, channels)
        for _ in range(25):
            box = draw_box(shape, (0.05, 1.0), RATIO, rng)
            expected = functional.resized_crop(picture, *box, list(shape), mode)
            assert resized_crop(picture, box, resample).tobytes() == expected.tobytes()


@pytest.mark.framework
def test_with_its_filter_it_is_timms(as_random, picture_of, monkeypatch):
    transforms = pytest.importorskip("timm.data.transforms")
    theirs = transforms.RandomResizedCropAndInterpolation((32, 32), (0.08, 1.0), RATIO, "random")
    ours, picture = ResizedCrop((0.08, 1.0), RATIO, (BILINEAR, BICUBIC)), picture_of()
    for seed in range(60):
        monkeypatch.setattr(transforms, "random", as_random(np.random.default_rng(seed)))
        assert ours.draw((32, 32), np.random.default_rng(seed))(picture).tobytes() == theirs(picture).tobytes()
