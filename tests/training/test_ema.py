"""The moving average against its closed form and PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

from numpy_vit.training import ema


def test_closed_form():
    # parameters that stay at p: the average's distance from them shrinks by the decay at every update
    average, params = np.array([1.0, -3.0]), np.array([2.0, 5.0])
    start = average.copy()
    for _ in range(10):
        ema.update(average, params, 0.9)
    np.testing.assert_allclose(average, params + 0.9**10 * (start - params), rtol=1e-14)


def test_weights_of_a_history():
    rng = np.random.default_rng(1)
    history = rng.standard_normal((20, 101))
    average = history[0].copy()
    for params in history[1:]:
        ema.update(average, params, 0.8)
    weights = 0.2 * 0.8 ** np.arange(19, -1, -1)
    weights[0] = 0.8**19
    np.testing.assert_allclose(average, weights @ history, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(weights.sum(), 1.0, rtol=1e-14)


def test_ends_of_the_decay():
    average, params = np.array([1.0]), np.array([2.0])
    ema.update(average, params, 1.0)
    assert average[0] == 1.0
    ema.update(average, params, 0.0)
    assert average[0] == 2.0 and params[0] == 2.0


def test_chunks_and_float32(monkeypatch):
    rng = np.random.default_rng(2)
    start, params = rng.standard_normal((2, 101), dtype=np.float32)
    whole, chunked = start.copy(), start.copy()
    ema.update(whole, params, 0.99)
    monkeypatch.setattr(ema, "CHUNK", 10)
    ema.update(chunked, params, 0.99)
    np.testing.assert_array_equal(chunked, whole)
    assert whole.dtype == np.float32
    np.testing.assert_allclose(whole, 0.99 * start + 0.01 * params, rtol=1e-5, atol=1e-6)


def test_decay_at():
    assert [ema.decay_at(step, 0.999) for step in (0, 1, 8, 90)] == [0.1, 2 / 11, 0.5, 0.91]
    assert ema.decay_at(10**6, 0.999) == 0.999
    assert ema.decay_at(8, 0.4) == 0.4


def test_wrong_arguments():
    with pytest.raises(ValueError, match=r"decay is 1\.1"):
        ema.update(np.zeros(2), np.zeros(2), 1.1)
    with pytest.raises(ValueError, match="decay is nan"):
        ema.decay_at(3, float("nan"))
    with pytest.raises(ValueError, match="step is -1"):
        ema.decay_at(-1, 0.9)
    with pytest.raises(ValueError, match="flat buffer"):
        ema.update(np.zeros(2), np.zeros(3), 0.9)
    with pytest.raises(ValueError, match="float32"):
        ema.update(np.zeros(2, np.float32), np.zeros(2), 0.9)


@pytest.mark.framework
def test_torch():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(3)
    average = rng.standard_normal(50)
    theirs = torch.from_numpy(average.copy())
    step = torch.optim.swa_utils.get_ema_multi_avg_fn(0.95)
    for params in rng.standard_normal((20, 50)):
        ema.update(average, params, 0.95)
        step([theirs], [torch.from_numpy(params)], 0)
    np.testing.assert_allclose(average, theirs.numpy(), rtol=1e-13, atol=1e-15)
