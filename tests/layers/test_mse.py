"""The mean squared error against loops, with MAE's mask."""

from __future__ import annotations

import numpy as np
import pytest

from numpy_vit.layers import mse


def test_by_hand():
    prediction, target = np.array([[[1.0, 2.0], [3.0, 4.0]]]), np.array([[[1.0, 0.0], [0.0, 0.0]]])
    loss, cache = mse.forward(prediction, target)
    assert loss == ((0 + 4) / 2 + (9 + 16) / 2) / 2
    assert mse.backward(1.0, cache).tolist() == [[[0.0, 1.0], [1.5, 2.0]]]
    loss, cache = mse.forward(prediction, target, np.array([[0.0, 1.0]]))
    assert loss == (9 + 16) / 2
    assert mse.backward(2.0, cache).tolist() == [[[0.0, 0.0], [6.0, 8.0]]]


def test_against_loops():
    rng = np.random.default_rng(0)
    prediction, target = rng.standard_normal((2, 3, 5, 4))
    mask = np.array([[1, 0, 1, 1, 0], [0, 0, 0, 0, 0], [0, 1, 0, 0, 0]])
    total, gradient = 0.0, np.zeros_like(prediction)
    for b, n, i in np.ndindex(3, 5, 4):
        difference = prediction[b, n, i] - target[b, n, i]
        total += mask[b, n] * difference**2 / 4 / 4  # 4 tokens count, each has 4 entries
        gradient[b, n, i] = mask[b, n] * 2 * difference / 4 / 4
    loss, cache = mse.forward(prediction, target, mask)
    assert loss == pytest.approx(total, rel=1e-14)
    np.testing.assert_allclose(mse.backward(1.0, cache), gradient, rtol=1e-14)
    assert (gradient[mask == 0] == 0).all()


def test_a_mask_of_ones_is_no_mask():
    rng = np.random.default_rng(1)
    prediction, target = rng.standard_normal((2, 3, 5, 4))
    assert mse.forward(prediction, target)[0] == mse.forward(prediction, target, np.ones((3, 5)))[0]
    assert mse.forward(prediction, prediction)[0] == 0


@pytest.mark.parametrize(
    ("target", "mask", "message"),
    [
        (np.zeros((2, 3, 5)), None, r"\(2, 3, 4\) and target \(2, 3, 5\)"),
        (np.zeros((2, 3, 4)), np.ones((2, 4)), r"\(2, 4\).*\(2, 3\)"),
        (np.zeros((2, 3, 4)), np.zeros((2, 3)), "sums to zero"),
    ],
)
def test_what_does_not_fit_is_named(target, mask, message):
    with pytest.raises(ValueError, match=message):
        mse.forward(np.zeros((2, 3, 4)), target, mask)
