"""The loss over masked patches: the normalised target, the denominator that lets parts add up, loops and gradients."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from numpy_vit.checks import gradcheck
from numpy_vit.layers import masked_patch_loss


def test_the_target_has_the_unbiased_variance():
    patches = np.random.default_rng(0).uniform(-3, 5, (2, 3, 7))
    target, mean, deviation = masked_patch_loss.normalised(patches)
    for b, n in np.ndindex(2, 3):
        values = patches[b, n].tolist()
        assert mean[b, n, 0] == pytest.approx(statistics.fmean(values), rel=1e-14)
        assert deviation[b, n, 0] == pytest.approx(math.sqrt(statistics.variance(values) + 1e-6), rel=1e-14)
    np.testing.assert_allclose(target * deviation + mean, patches, rtol=1e-13, atol=1e-13)
    biased = (patches - mean) / np.sqrt(patches.var(axis=-1, keepdims=True) + 1e-6)
    assert np.abs(target - biased).max() > 0.05  # so the comparison above would notice


def test_a_patch_of_one_colour():
    target, mean, deviation = masked_patch_loss.normalised(np.full((1, 1, 4), 0.25, np.float32))
    assert target.tolist() == [[[0, 0, 0, 0]]]
    assert mean.item() == 0.25
    assert deviation.item() == np.float32(1e-3)
    assert {leaf.dtype for leaf in (target, mean, deviation)} == {np.dtype(np.float32)}


def test_a_patch_of_one_number():
    with pytest.raises(ValueError, match="of 1 number have no unbiased variance"):
        masked_patch_loss.normalised(np.zeros((2, 3, 1)))


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), batch=st.integers(1, 3), patches=st.integers(1, 5), pixels=st.integers(1, 4))
def test_against_loops(seed, batch, patches, pixels):
    rng = np.random.default_rng(seed)
    prediction, target = rng.standard_normal((2, batch, patches, pixels))
    mask = rng.random((batch, patches)) < 0.6
    mask[0, -1] = True
    total = 0.0
    for b, n in zip(*np.nonzero(mask), strict=True):
        total += math.fsum((p - t) ** 2 for p, t in zip(prediction[b, n], target[b, n], strict=True)) / pixels
    loss, _ = masked_patch_loss.forward(prediction, target, mask)
    assert loss == pytest.approx(total / mask.sum(), rel=1e-12)
    loss, cache = masked_patch_loss.forward(prediction, target, mask, denominator=7)
    assert loss == pytest.approx(total / 7, rel=1e-12)
    assert (masked_patch_loss.backward(1.0, cache)[~mask] == 0).all()
    for denominator in (None, 7):
        gradcheck(
            lambda x, d=denominator: masked_patch_loss.forward(x, target, mask, d), masked_patch_loss.backward,
            None, prediction,
        ).raise_if_failed()  # fmt: skip


def test_parts_with_the_whole_denominator_add_up():
    rng = np.random.default_rng(1)
    prediction, target = rng.standard_normal((2, 6, 5, 4))
    mask = rng.random((6, 5)) < 0.5
    whole, cache = masked_patch_loss.forward(prediction, target, mask)
    dwhole = masked_patch_loss.backward(1.0, cache)
    parts = [slice(0, 1), slice(1, 4), slice(4, 6)]
    answers = [masked_patch_loss.forward(prediction[s], target[s], mask[s], float(mask.sum())) for s in parts]
    assert sum(loss for loss, _ in answers) == pytest.approx(whole, rel=1e-14)
    joined = np.concatenate([masked_patch_loss.backward(1.0, cache) for _, cache in answers])
    np.testing.assert_allclose(joined, dwhole, rtol=1e-13)


def test_what_does_not_fit_is_named():
    zeros, mask = np.zeros((2, 3, 4)), np.ones((2, 3), bool)
    with pytest.raises(ValueError, match="denominator 0 has to be positive"):
        masked_patch_loss.forward(zeros, zeros, mask, 0)
    with pytest.raises(ValueError, match="sums to zero"):
        masked_patch_loss.forward(zeros, zeros, ~mask)
