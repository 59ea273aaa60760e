"""Clipping against closed forms and PyTorch."""

from __future__ import annotations

import math

import numpy as np
import pytest

from numpy_vit.training import clip


def test_by_hand():
    grads = np.array([3.0, 0.0, -4.0])
    assert clip.clip_by_global_norm(grads, 1.0) == 5.0
    np.testing.assert_allclose(grads, np.array([3.0, 0.0, -4.0]) / 5.000001, rtol=1e-15)


def test_a_short_gradient_is_left_alone():
    grads = np.array([3.0, 0.0, -4.0])
    assert clip.clip_by_global_norm(grads, 5.1) == 5.0
    np.testing.assert_array_equal(grads, [3.0, 0.0, -4.0])
    assert clip.clip_by_global_norm(np.zeros(3), 1.0) == 0.0
    assert clip.clip_by_global_norm(np.zeros(0), 1.0) == 0.0


def test_float32_does_not_overflow():
    # the squares overflow float32, their sum would overflow it more
    grads = np.full(1000, 1e30, np.float32)
    norm = clip.clip_by_global_norm(grads, 2.0)
    np.testing.assert_allclose(norm, float(np.float32(1e30)) * math.sqrt(1000), rtol=1e-14)
    assert grads.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(grads.astype(np.float64)), 2.0, rtol=1e-6)


def test_long_float32_buffer_is_accurate():
    # a large entry in front of many small ones: their sum in float32, one after the other, would be lost
    grads = np.full(3_000_001, 1e-3, np.float32)
    grads[0] = 100.0
    expected = math.sqrt(100.0**2 + 3_000_000 * float(np.float32(1e-3)) ** 2)
    np.testing.assert_allclose(clip.global_norm(grads), expected, rtol=1e-13)


def test_not_finite_follows_torch():
    grads = np.array([1.0, np.inf])
    with np.errstate(invalid="ignore"):
        assert clip.clip_by_global_norm(grads, 1.0) == np.inf
    assert grads[0] == 0.0 and np.isnan(grads[1])
    grads = np.array([1.0, np.nan])
    assert np.isnan(clip.clip_by_global_norm(grads, 1.0))
    assert np.isnan(grads).all()


def test_wrong_arguments():
    with pytest.raises(ValueError, match=r"max_norm is 0\.0"):
        clip.clip_by_global_norm(np.ones(2), 0.0)
    with pytest.raises(ValueError, match="max_norm is nan"):
        clip.clip_by_global_norm(np.ones(2), math.nan)
    with pytest.raises(ValueError, match=r"shape \(2, 2\)"):
        clip.clip_by_global_norm(np.ones((2, 2)), 1.0)


@pytest.mark.framework
@pytest.mark.parametrize("max_norm", [1e-3, 1.0, 80.0, 1e4])
@pytest.mark.parametrize("values", ["random", "inf", "nan"])
def test_torch(max_norm, values):
    torch = pytest.importorskip("torch")
    grads = np.random.default_rng(0).standard_normal(5000)
    if values != "random":
        grads[17] = float(values)
    sizes = [4000, 999, 1]
    parameters = []
    for part in np.split(grads.copy(), np.cumsum(sizes)[:-1]):
        parameter = torch.nn.Parameter(torch.zeros(part.size, dtype=torch.float64))
        parameter.grad = torch.from_numpy(part)
        parameters.append(parameter)
    theirs = float(torch.nn.utils.clip_grad_norm_(parameters, max_norm))
    with np.errstate(invalid="ignore"):
        ours = clip.clip_by_global_norm(grads, max_norm)
    np.testing.assert_allclose(ours, theirs, rtol=1e-14)
    clipped = np.concatenate([parameter.grad.numpy() for parameter in parameters])
    np.testing.assert_allclose(grads, clipped, rtol=1e-13)
