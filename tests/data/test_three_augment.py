"""3-Augment: one of three, each equally often, as timm's "3a"."""

import numpy as np
import pytest

from numpy_vit.data.three_augment import ThreeAugment


def test_each_comes_equally_often():
    rng = np.random.default_rng(0)
    names, radii = [], []
    for _ in range(3000):
        (change,) = ThreeAugment().draw(rng)
        names.append(getattr(change, "func", change).__name__)
        radii += [change.keywords["radius"]] if names[-1] == "blur" else []
    assert set(names) == {"solarize", "saturation", "blur"}
    assert all(abs(names.count(name) - 1000) < 130 for name in set(names))  # five standard deviations
    assert 0.1 <= min(radii) < 0.11
    assert 1.99 < max(radii) <= 2.0
    assert abs(np.mean(radii) - 1.05) < 0.09


def test_what_they_do(picture_of):
    picture, seen = picture_of(), {}
    before = np.asarray(picture).astype(int)
    for seed in range(20):
        (change,) = ThreeAugment().draw(np.random.default_rng(seed))
        seen[getattr(change, "func", change).__name__] = np.asarray(change(picture)).astype(int)
    np.testing.assert_array_equal(seen["solarize"], np.where(before < 128, before, 255 - before))
    assert (np.ptp(seen["saturation"], axis=2) == 0).all()
    assert np.abs(np.diff(seen["blur"], axis=0)).mean() < np.abs(np.diff(before, axis=0)).mean()


@pytest.mark.framework
@pytest.mark.parametrize("channels", [1, 3])
def test_it_is_timms(channels, as_random, picture_of, monkeypatch):
    timm = pytest.importorskip("timm.data.auto_augment")
    theirs, picture = timm.auto_augment_transform("3a"), picture_of(channels=channels)
    for seed in range(60):
        monkeypatch.setattr(timm, "random", as_random(np.random.default_rng(seed)))
        (change,) = ThreeAugment().draw(np.random.default_rng(seed))
        assert change(picture).tobytes() == theirs(picture).tobytes()
