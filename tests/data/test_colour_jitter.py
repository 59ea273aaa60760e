"""Colour jitter: factors in their ranges, every order, and torchvision's result."""

import math
from collections import Counter

import numpy as np
import pytest

from numpy_vit.data.colour_jitter import ColourJitter

NAMES = ["brightness", "contrast", "saturation", "hue"]


def test_every_order_comes_equally_often():
    rng, jitter = np.random.default_rng(0), ColourJitter(0.3, 0.3, 0.3)
    orders = Counter(tuple(change.func.__name__ for change in jitter.draw(rng)) for _ in range(6000))
    assert len(orders) == 6
    assert all(abs(count - 1000) < 150 for count in orders.values())  # five standard deviations


def test_factors_fill_their_ranges():
    rng, jitter, found = np.random.default_rng(0), ColourJitter(0.2, 0.5, 1.5, 0.1), {name: [] for name in NAMES}
    for _ in range(2000):
        for change in jitter.draw(rng):
            found[change.func.__name__].extend(change.keywords.values())
    for name, (low, high) in zip(NAMES, [(0.8, 1.2), (0.5, 1.5), (0.0, 2.5), (-0.1, 0.1)], strict=True):
        assert len(found[name]) == 2000
        assert low <= min(found[name]) < low + 0.01 * (high - low)
        assert high - 0.01 * (high - low) < max(found[name]) <= high
        assert abs(np.mean(found[name]) - (low + high) / 2) < 5 * (high - low) / math.sqrt(12 * 2000)


def test_what_is_off_is_left_out():
    rng = np.random.default_rng(0)
    assert ColourJitter().draw(rng) == []
    assert [change.func.__name__ for change in ColourJitter(contrast=0.1).draw(rng)] == ["contrast"]


@pytest.mark.parametrize("fields", [{"brightness": -0.1}, {"contrast": math.inf}, {"hue": 0.6}, {"hue": math.nan}])
def test_strengths_out_of_range(fields):
    with pytest.raises(ValueError, match=str(*fields.values())):
        ColourJitter(**fields)


@pytest.mark.framework
@pytest.mark.parametrize("channels", [1, 3])
def test_the_result_is_torchvisions(channels, picture_of, monkeypatch):
    transforms = pytest.importorskip("torchvision.transforms")
    theirs, ours, picture = transforms.ColorJitter(0.4, 0.4, 0.4, 0.2), ColourJitter(0.4, 0.4, 0.4, 0.2), None
    assert (theirs.brightness, theirs.hue) == ((0.6, 1.4), (-0.2, 0.2))
    for seed in range(40):
        picture = picture_of(channels=channels, seed=seed)
        changes = ours.draw(np.random.default_rng(seed))
        drawn = {change.func.__name__: next(iter(change.keywords.values())) for change in changes}
        params = ([NAMES.index(name) for name in drawn], *(drawn[name] for name in NAMES))
        monkeypatch.setattr(theirs, "get_params", lambda *_, params=params: params)
        result = picture
        for change in changes:
            result = change(result)
        assert result.tobytes() == theirs(picture).tobytes()
