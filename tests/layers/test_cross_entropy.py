"""The cross-entropy against numbers worked out by hand and logarithms one by one."""

from __future__ import annotations

import math

import numpy as np
import pytest

from numpy_vit.layers import cross_entropy


def loss_and_gradient(logits, targets, **choices):
    loss, cache = cross_entropy.forward(np.asarray(logits, np.float64), np.asarray(targets), **choices)
    return loss, cross_entropy.backward(np.ones_like(loss), cache)


@pytest.mark.parametrize("size", [800.0, 1e4])
def test_large_logits_are_exact(size):
    loss, dlogits = loss_and_gradient([[size, 0.0], [size, 0.0], [0.0, -size]], [0, 1, 1], reduction="none")
    assert loss.tolist() == [0.0, size, size]
    assert dlogits.tolist() == [[0.0, 0.0], [1.0, -1.0], [1.0, -1.0]]


def test_a_class_that_is_ruled_out_costs_nothing():
    loss, dlogits = loss_and_gradient([[-np.inf, 3.0, 3.0]], [1])
    assert loss == pytest.approx(math.log(2), rel=1e-15)
    assert dlogits.tolist() == [[0.0, -0.5, 0.5]]


@pytest.mark.parametrize("classes", [1, 2, 10, 1000])
def test_equal_logits_cost_the_logarithm_of_the_classes(classes):
    loss, dlogits = loss_and_gradient(np.full((3, classes), 7.0), [0, classes - 1, classes // 2])
    assert loss == pytest.approx(math.log(classes), rel=1e-14, abs=1e-15)
    assert dlogits[0, 0] == pytest.approx((1 / classes - 1) / 3, rel=1e-14, abs=1e-15)


def test_label_smoothing_by_hand():
    p = [0.7, 0.2, 0.1]
    loss, dlogits = loss_and_gradient([[math.log(value) for value in p]], [0], label_smoothing=0.3)
    target = [0.7 + 0.1, 0.1, 0.1]  # (1 - ε) on the true class, ε/K on each: the true one has its share too
    assert loss == pytest.approx(-sum(t * math.log(q) for t, q in zip(target, p, strict=True)), rel=1e-14)
    np.testing.assert_allclose(dlogits[0], np.subtract(p, target), rtol=1e-13, atol=1e-16)


def reference(row, target):
    """Return -Σ t log p and Σ t p - t for one row, with sums that do not round."""
    shift = max(row)
    log_total = shift + math.log(math.fsum(math.exp(z - shift) for z in row))
    loss = -math.fsum(t * (z - log_total) for t, z in zip(target, row, strict=True))
    total = math.fsum(target)
    return loss, [total * math.exp(z - log_total) - t for t, z in zip(target, row, strict=True)]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_every_reduction_against_loops(reduction, smoothing, weighted):
    rng = np.random.default_rng(0)
    logits, soft = 5 * rng.standard_normal((4, 6)), rng.uniform(0, 1, (4, 6))  # need not sum to 1
    weights = rng.uniform(0.5, 2, 4) if weighted else None
    loss, dlogits = loss_and_gradient(logits, soft, label_smoothing=smoothing, weights=weights, reduction=reduction)
    factors = np.ones(4) if weights is None else weights
    factors = factors / math.fsum(factors) if reduction == "mean" else factors
    targets = (1 - smoothing) * soft + smoothing / 6
    rows = [reference(z.tolist(), t.tolist()) for z, t in zip(logits, targets, strict=True)]
    losses = [factor * row for factor, (row, _) in zip(factors, rows, strict=True)]
    np.testing.assert_allclose(loss, losses if reduction == "none" else math.fsum(losses), rtol=1e-13)
    gradients = [factor * np.array(row) for factor, (_, row) in zip(factors, rows, strict=True)]
    np.testing.assert_allclose(dlogits, gradients, rtol=1e-11, atol=1e-14)


def test_one_hot_targets_are_indices_to_the_bit():
    rng = np.random.default_rng(1)
    logits, indices = rng.standard_normal((5, 4)), np.array([3, 0, 1, 1, 2], np.uint8)
    for choices in ({}, {"label_smoothing": 0.2}, {"reduction": "none"}):
        hard = loss_and_gradient(logits, indices, **choices)
        soft = loss_and_gradient(logits, np.eye(4)[indices], **choices)
        np.testing.assert_array_equal(hard[0], soft[0])
        np.testing.assert_array_equal(hard[1], soft[1])


def test_the_mean_is_divided_by_the_batch_once():
    rng = np.random.default_rng(2)
    logits, targets = rng.standard_normal((7, 3)), rng.integers(0, 3, 7)
    mean, dmean = loss_and_gradient(logits, targets)
    total, dtotal = loss_and_gradient(logits, targets, reduction="sum")
    assert mean == pytest.approx(total / 7, rel=1e-14)
    np.testing.assert_allclose(dmean, dtotal / 7, rtol=1e-13)
    twice, dtwice = loss_and_gradient(np.concatenate([logits, logits]), np.concatenate([targets, targets]))
    assert twice == pytest.approx(mean, rel=1e-14)
    np.testing.assert_allclose(dtwice[:7], dmean / 2, rtol=1e-13)
    np.testing.assert_allclose(dmean.sum(axis=-1), 0, atol=1e-16)


def test_the_upstream_gradient_scales():
    rng = np.random.default_rng(3)
    logits, targets = rng.standard_normal((4, 3)), rng.integers(0, 3, 4)
    _, cache = cross_entropy.forward(logits, targets)
    np.testing.assert_allclose(cross_entropy.backward(-2.5, cache), -2.5 * cross_entropy.backward(1.0, cache))
    _, cache = cross_entropy.forward(logits, targets, reduction="none")
    each = cross_entropy.backward(np.arange(4.0), cache)
    np.testing.assert_allclose(each, np.arange(4.0)[:, None] * cross_entropy.backward(np.ones(4), cache))


@pytest.mark.parametrize(
    ("targets", "choices", "message"),
    [
        (np.array([0, 3]), {}, "0 to 3 do not fit 3 classes, 0 to 2"),
        (np.array([-1, 0]), {}, "-1 to 0 do not fit 3 classes"),
        (np.array([0, 1, 2]), {}, r"\(3,\) do not fit logits \(2, 3\)"),
        (np.zeros((2, 4)), {}, r"\(2, 4\).*\(2, 3\)"),
        (np.array([0, 1]), {"weights": np.ones(3)}, r"\(3,\) do not fit 2 samples"),
        (np.array([0, 1]), {"reduction": "average"}, "mean, sum, none, not 'average'"),
    ],
)
def test_what_does_not_fit_is_named(targets, choices, message):
    with pytest.raises(ValueError, match=message):
        cross_entropy.forward(np.zeros((2, 3)), targets, **choices)
