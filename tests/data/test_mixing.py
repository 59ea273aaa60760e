"""Mixup and CutMix: what shares mean, and timm's own with the same numbers."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from numpy_vit.data.mixing import Mix, Mixing, draw_box, soft_targets
from numpy_vit.data.randomness import batch_rng


def batch(n=6, channels=3, height=8, width=10, classes=5, dtype=np.float64):
    rng = np.random.default_rng(2)
    images = rng.normal(size=(n, channels, height, width)).astype(dtype)
    return images, soft_targets(rng.integers(0, classes, n), classes, 0.1, dtype)


@given(st.integers(0, 10**6), st.integers(1, 9), st.sampled_from([(0.8, 0), (0, 1.0), (0.3, 0.4)]))
def test_the_share_is_that_of_an_images_own_pixels_and_of_its_target(seed, n, alphas):
    mix = Mixing(*alphas).draw(batch_rng(seed, 0, 0), (n, 1, 9, 7))
    owners = np.broadcast_to(np.eye(n)[:, :, None, None], (n, n, 9, 7))  # channel j is 1 where a pixel is image j's
    images, targets = Mixing.apply(owners, np.eye(n), mix)
    np.testing.assert_allclose(images.mean((2, 3)), targets, atol=1e-12)
    np.testing.assert_allclose(targets.sum(1), 1, atol=1e-12)
    expected = mix.lam * np.eye(n) + (1 - mix.lam) * np.eye(n)[::-1]
    np.testing.assert_allclose(targets, expected, atol=1e-12)


def test_cutmix_takes_the_box_and_nothing_else():
    images, targets = batch()
    before = images.copy(), targets.copy()
    mixed, _ = Mixing.apply(images, targets, Mix("cutmix", 0.9, (1, 3, 2, 6)))
    np.testing.assert_array_equal(mixed[:, :, 1:3, 2:6], images[::-1, :, 1:3, 2:6])
    mixed[:, :, 1:3, 2:6] = images[:, :, 1:3, 2:6]
    np.testing.assert_array_equal(mixed, images)
    np.testing.assert_array_equal(images, before[0])
    np.testing.assert_array_equal(targets, before[1])


def test_boxes_have_their_area_unless_they_are_clipped():
    rng = np.random.default_rng(0)
    for _ in range(500):
        lam = rng.uniform()
        top, bottom, left, right = draw_box((100, 60), lam, rng)
        height, width = int(100 * math.sqrt(1 - lam)), int(60 * math.sqrt(1 - lam))
        assert 0 <= top <= bottom <= 100
        assert 0 <= left <= right <= 60
        assert bottom - top == height or (bottom - top < height and (top == 0 or bottom == 100))
        assert right - left == width or (right - left < width and (left == 0 or right == 60))
    assert draw_box((100, 60), 0.0, rng) != (0, 100, 0, 60)  # the centre is anywhere, so even a whole box is clipped


def test_kinds_and_shares_are_drawn_as_often_as_they_should():
    rng = np.random.default_rng(0)
    drawn = [Mixing(0.8, 1.0, prob=0.8, switch_prob=0.25).draw(rng, (4, 3, 64, 64)) for _ in range(4000)]
    for kind, share in (("none", 0.2), ("cutmix", 0.2), ("mixup", 0.6)):
        assert abs(sum(mix.kind == kind for mix in drawn) / 4000 - share) < 0.04
    mixup = np.array([mix.lam for mix in drawn if mix.kind == "mixup"])
    assert abs(mixup.mean() - 0.5) < 0.03
    assert abs(mixup.var() - 1 / (4 * (2 * 0.8 + 1))) < 0.01  # Beta(α, α)
    assert {Mixing(0.8).draw(rng, (4, 3, 8, 8)).kind for _ in range(100)} == {"mixup"}
    assert {Mixing(0, 0.8).draw(rng, (4, 3, 8, 8)).kind for _ in range(100)} == {"cutmix"}
    assert Mixing().draw(rng, (4, 3, 8, 8)) == Mixing(1.0, prob=0.0).draw(rng, (4, 3, 8, 8)) == Mix("none", 1, (0,) * 4)


def test_nothing_mixed_is_the_batch_itself():
    images, targets = batch()
    same = Mixing.apply(images, targets, Mix("none", 1.0, (0, 0, 0, 0)))
    assert same[0] is images
    assert same[1] is targets


@pytest.mark.parametrize("mix", [Mix("mixup", 0.3, (0,) * 4), Mix("cutmix", 0.7, (0, 4, 0, 6))])
def test_float32_stays(mix):
    images, targets = Mixing.apply(*batch(dtype=np.float32), mix)
    assert images.dtype == targets.dtype == np.float32


def test_soft_targets():
    targets = soft_targets(np.array([2, 0]), 4, 0.2, np.float64)
    np.testing.assert_allclose(targets, [[0.05, 0.05, 0.85, 0.05], [0.85, 0.05, 0.05, 0.05]], rtol=1e-15)
    assert soft_targets(np.array([1]), 3).tolist() == [[0, 1, 0]]
    assert soft_targets(np.array([1]), 3).dtype == np.float32
    assert soft_targets(np.zeros(0, int), 3).shape == (0, 3)


def test_what_is_refused():
    for fields in ({"mixup": -1.0}, {"cutmix": math.inf}, {"prob": 1.1}, {"switch_prob": math.nan}):
        with pytest.raises(ValueError, match=str(*fields.values())):
            Mixing(**fields)
    images, targets = batch()
    with pytest.raises(ValueError, match=r"\(5, 5\)"):
        Mixing.apply(images, targets[1:], Mix("mixup", 0.5, (0,) * 4))
    with pytest.raises(TypeError, match="uint8"):
        Mixing.apply(images.astype(np.uint8), targets, Mix("mixup", 0.5, (0,) * 4))
    for labels, words in (([3], r"0 \.\. 2, not 3"), ([-1], "not -1"), ([0.5], "float64"), ([[0]], r"\(1, 1\)")):
        with pytest.raises(ValueError, match=words):
            soft_targets(np.array(labels), 3)
    with pytest.raises(ValueError, match="smoothing"):
        soft_targets(np.array([0]), 3, 1.5)


@pytest.fixture
def timm(monkeypatch):
    """timm's module in float64, and a way to give it a Generator's numbers."""
    torch = pytest.importorskip("torch")
    module = pytest.importorskip("timm.data.mixup")

    def draw_from(rng):
        draws = SimpleNamespace(
            rand=rng.random, beta=rng.beta, randint=lambda low, high, size: int(rng.integers(low, high))
        )
        monkeypatch.setattr(module, "np", SimpleNamespace(random=draws, sqrt=np.sqrt, clip=np.clip))

    kept = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield SimpleNamespace(module=module, draw_from=draw_from, torch=torch)
    torch.set_default_dtype(kept)


@pytest.mark.framework
@pytest.mark.parametrize("alphas", [(0.8, 0.0), (0.0, 1.0), (0.2, 0.5)], ids=str)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_batches_and_targets_are_timms(alphas, smoothing, timm):
    labels, kinds = np.random.default_rng(0).integers(0, 7, 8), set()
    for seed in range(60):
        images = np.random.default_rng(seed).normal(size=(8, 3, 11, 14))
        theirs = timm.module.Mixup(*alphas, prob=0.9, switch_prob=0.4, label_smoothing=smoothing, num_classes=7)
        timm.draw_from(batch_rng(seed, 1, 2))
        x, y = theirs(timm.torch.tensor(images), timm.torch.tensor(labels))
        mixing = Mixing(*alphas, prob=0.9, switch_prob=0.4)
        mix = mixing.draw(batch_rng(seed, 1, 2), images.shape)
        ours = mixing.apply(images, soft_targets(labels, 7, smoothing, np.float64), mix)
        np.testing.assert_allclose(ours[0], x.numpy(), rtol=0, atol=1e-15)
        np.testing.assert_allclose(ours[1], y.numpy(), rtol=0, atol=1e-15)
        kinds.add(mix.kind)
    assert kinds == {"none"} | ({"mixup"} if alphas[0] else set()) | ({"cutmix"} if alphas[1] else set())


@pytest.mark.framework
def test_with_no_targets_of_ours_a_wrong_share_is_seen(timm):
    """A negative control: without the correction of the clipped box the targets differ."""
    differing, labels = 0, np.arange(4)
    for seed in range(20):
        theirs = timm.module.Mixup(0.0, 1.0, correct_lam=False, label_smoothing=0.0, num_classes=4)
        timm.draw_from(batch_rng(seed, 0, 0))
        _, y = theirs(timm.torch.zeros((4, 1, 8, 8)), timm.torch.tensor(labels))
        mix = Mixing(0.0, 1.0).draw(batch_rng(seed, 0, 0), (4, 1, 8, 8))
        ours = Mixing.apply(np.zeros((4, 1, 8, 8)), soft_targets(labels, 4, dtype=np.float64), mix)[1]
        differing += not np.allclose(ours, y.numpy())
    assert differing > 10
