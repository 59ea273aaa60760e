"""Patch dropout: which tokens stay, where gradients go, and what timm does."""

from __future__ import annotations

import numpy as np
import pytest

from numpy_vit.layers import patch_dropout


def tokens(B: int = 3, T: int = 2, N: int = 10, D: int = 4) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(B, T + N, D))


def test_prefix_tokens_stay_and_patches_keep_their_order() -> None:
    x = tokens()
    y, _ = patch_dropout.forward(x, 0.5, 2, np.random.default_rng(1))
    assert y.shape == (3, 7, 4)
    np.testing.assert_array_equal(y[:, :2], x[:, :2])
    chosen = [[int(np.flatnonzero((x[b] == row).all(axis=1))[0]) for row in y[b]] for b in range(3)]
    for places in chosen:
        assert places == sorted(set(places))
        assert places[:2] == [0, 1]
    assert len({tuple(places) for places in chosen}) > 1  # each image has a choice of its own


def test_every_patch_is_as_likely_to_stay() -> None:
    x = np.broadcast_to(np.arange(9.0)[None, :, None], (4000, 9, 1))
    y, _ = patch_dropout.forward(x, 0.25, 1, np.random.default_rng(2))
    share = np.bincount(y[:, 1:].astype(int).ravel(), minlength=9)[1:] / 4000
    np.testing.assert_allclose(share, 6 / 8, atol=0.03)


@pytest.mark.parametrize(("patches", "rate", "count"), [(64, 0.5, 32), (10, 0.25, 7), (3, 0.99, 1), (5, 0.0, 5)])
def test_how_many_stay(patches: int, rate: float, count: int) -> None:
    assert patch_dropout.kept(patches, rate) == count


def test_without_randomness_or_rate_nothing_is_dropped() -> None:
    x = tokens()
    assert patch_dropout.forward(x, 0.5, 2, None)[0] is x
    y, cache = patch_dropout.forward(x, 0.0, 2, np.random.default_rng(0))
    assert y is x
    assert patch_dropout.backward(x, cache) is x


def test_backward_is_the_adjoint() -> None:
    x = tokens()
    y, cache = patch_dropout.forward(x, 0.4, 2, np.random.default_rng(3))
    dy = np.random.default_rng(4).normal(size=y.shape)
    dx = patch_dropout.backward(dy, cache)
    np.testing.assert_allclose((y * dy).sum(), (x * dx).sum(), rtol=1e-12)
    assert (dx == 0).all(axis=2).sum() == 3 * 4  # the four dropped patches of each image


@pytest.mark.framework
def test_the_number_that_stays_is_timms() -> None:
    torch = pytest.importorskip("torch")
    layers = pytest.importorskip("timm.layers")
    for rate in (0.1, 0.25, 0.5, 0.75, 0.9):
        layer = layers.PatchDropout(rate, num_prefix_tokens=2).train()
        x = torch.zeros(2, 2 + 49, 3)
        y, _ = patch_dropout.forward(x.numpy(), rate, 2, np.random.default_rng(0))
        assert y.shape == tuple(layer(x).shape)
