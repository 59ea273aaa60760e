"""RandAugment against timm's, operation by operation and as a whole with the same numbers drawn."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from numpy_vit.data.rand_augment import INCREASING, PLAIN, RandAugment

BICUBIC, BILINEAR = Image.Resampling.BICUBIC, Image.Resampling.BILINEAR
FILL = (120, 110, 100)
ENHANCED = ("Posterize", "Solarize", "Color", "Contrast", "Brightness", "Sharpness")
TEXTS = [
    "rand-m9-n2-mstd0.5-inc1",
    "rand-m9-mstd0.5",
    "rand-m7-n4-p0.9",
    "rand-inc1-m15-mmax20-mstd2-p1",
    "rand-m10-mstd101",
    "rand",
]


def test_configurations():
    assert RandAugment.parse("rand") == RandAugment(10, 2, 0.5, 0.0, 10, False)
    assert RandAugment.parse("rand-m9-n2-mstd0.5-inc1") == RandAugment(9, 2, 0.5, 0.5, 10, True)
    assert RandAugment.parse("rand-inc0-p1-mmax30-m15") == RandAugment(15, 2, 1.0, 0.0, 30, False)
    assert RandAugment.parse("rand-mstd100.5").deviation == math.inf
    assert RandAugment.parse("rand", FILL, (BICUBIC,)) == RandAugment(fill=FILL, resampling=(BICUBIC,))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rand-m9-w0", "'w0' is not one of m<number>"),
        ("rand-tweights", "'tweights'"),
        ("rand-m", "'m' is"),
        ("rand-m9-", "'' is"),
        ("rand-m-3", "'m' is"),
        ("rand-m9-m8", "'m8' comes twice"),
        ("rand-m9.5", "'m9.5' needs a whole number"),
        ("rand-inc0.5", "'inc0.5' needs a whole number"),
        ("augmix-m3", "begins with 'rand'"),
        ("random-m9", "begins with 'rand'"),
        ("rand-p1.5", r"p in \[0, 1\]"),
        ("rand-n0", "n and mmax of at least 1, not 0"),
        ("rand-mmax0", "n and mmax"),
    ],
)
def test_configurations_that_are_refused(text, words):
    with pytest.raises(ValueError, match=words):
        RandAugment.parse(text)


def test_the_ends_of_the_ranges():
    at = {name: [row.argument(level, sign) for level in (0, 1) for sign in (1, -1)] for name, row in rows().items()}
    assert at["Rotate"] == [0, 0, 30, -30]
    assert at["ShearX"] == at["ShearY"] == [0, 0, 0.3, -0.3]
    assert at["TranslateXRel"] == at["TranslateYRel"] == [0, 0, 0.45, -0.45]
    assert at["Posterize"] == [4, 4, 0, 0]
    assert at["Solarize"] == [256, 256, 0, 0]
    assert at["SolarizeAdd"] == [0, 0, 110, 110]
    for name in ("Color", "Contrast", "Brightness", "Sharpness"):
        np.testing.assert_allclose(at[name], [1, 1, 1.9, 0.1], rtol=1e-15)
        np.testing.assert_allclose([PLAIN[name].argument(level, 1) for level in (0, 1)], [0.1, 1.9], rtol=1e-15)
    assert [PLAIN["Posterize"].argument(level, 1) for level in (0, 0.5, 1)] == [0, 2, 4]
    assert [PLAIN["Solarize"].argument(level, 1) for level in (0, 0.5, 1)] == [0, 128, 256]


def rows():
    return {name: row for name, row in INCREASING.items() if row.argument}


def test_operations_come_as_often_as_they_should():
    rng, policy = np.random.default_rng(0), RandAugment(count=3, probability=0.5)
    counts = [len(policy.draw(rng)) for _ in range(3000)]
    expected = 3000 * np.array([1, 3, 3, 1]) / 8
    assert np.abs(np.bincount(counts) - expected).max() < 5 * math.sqrt(3000 * 3 / 8 * 5 / 8)
    assert {len(RandAugment(count=3, probability=1.0).draw(rng)) for _ in range(50)} == {3}
    assert not any(RandAugment(probability=0.0).draw(rng) for _ in range(50))


@pytest.mark.parametrize("channels", [1, 3])
def test_pictures_keep_mode_and_size(channels, picture_of):
    picture, rng = picture_of(11, 17, channels), np.random.default_rng(3)
    before = picture.tobytes()
    policy = RandAugment(9, 15, 1.0, 0.5, 10, True, FILL[:channels])
    for _ in range(10):
        for change in policy.draw(rng):
            changed = change(picture)
            assert (changed.mode, changed.size) == (picture.mode, (17, 11))
    assert picture.tobytes() == before


def timm_posterize(timm):
    """timm's, with the 0 bits that Pillow refuses since version 13 and took for black before."""
    return lambda img, bits, **_: img.point(lambda value: 0) if bits < 1 else timm.posterize(img, bits)


@pytest.mark.framework
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("increasing", [False, True])
@pytest.mark.parametrize("name", PLAIN)
def test_each_operation_is_timms(name, increasing, channels, picture_of, monkeypatch):
    timm = pytest.importorskip("timm.data.auto_augment")
    row = (INCREASING if increasing else PLAIN)[name]
    theirs = name + "Increasing" if increasing and name in ENHANCED else name
    function = timm_posterize(timm) if name == "Posterize" else timm.NAME_TO_OP[theirs]
    fill = FILL[:channels]
    pictures = [picture_of(19, 26, channels, seed) for seed in range(2)]
    for magnitude in np.arange(0, 10.25, 0.5).tolist():
        for sign in (1, -1):
            stand_in = SimpleNamespace(random=lambda sign=sign: 0.9 if sign < 0 else 0.1)
            monkeypatch.setattr(timm, "random", stand_in)
            level = timm.LEVEL_TO_ARG[theirs]
            expected_arguments = () if level is None else level(magnitude, {})
            arguments = () if row.argument is None else (row.argument(magnitude / 10, sign if row.signed else 1),)
            assert arguments == tuple(expected_arguments)
            for picture in pictures:
                for resample in (BILINEAR, BICUBIC) if row.moves else (BICUBIC,):
                    moving = (resample, fill) if row.moves else ()
                    expected = function(picture, *expected_arguments, resample=resample, fillcolor=fill)
                    assert row.operation(picture, *arguments, *moving).tobytes() == expected.tobytes()


@pytest.mark.framework
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("text", TEXTS)
def test_the_whole_is_timms(text, channels, as_random, picture_of, monkeypatch):
    timm = pytest.importorskip("timm.data.auto_augment")
    for name in ("Posterize", "PosterizeIncreasing"):
        monkeypatch.setitem(timm.NAME_TO_OP, name, timm_posterize(timm))
    fill = FILL[:channels]
    ours, theirs = RandAugment.parse(text, fill), timm.rand_augment_transform(text, {"img_mean": fill})
    changed = 0
    for seed in range(150):
        picture = picture_of(32, 32, channels, seed % 5)
        rng = np.random.default_rng(seed)

        def choice(values, count, replace, p, rng=rng):
            assert replace
            assert p is None
            return [values[int(rng.integers(len(values)))] for _ in range(count)]

        monkeypatch.setattr(timm, "random", as_random(rng))
        monkeypatch.setattr(timm, "np", SimpleNamespace(random=SimpleNamespace(choice=choice)))
        expected, result = theirs(picture), picture
        for change in ours.draw(np.random.default_rng(seed)):
            result = change(result)
        assert result.tobytes() == expected.tobytes()
        changed += result.tobytes() != picture.tobytes()
    assert changed > 80
