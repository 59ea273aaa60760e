"""Adam against the paper's Algorithm 1, hand-computed steps and PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

from numpy_vit.training import adam

STEPS = 25
FORMS = {
    "default": {},
    "decay": {"weight_decay": 0.1},
    "betas": {"beta1": 0.8, "beta2": 0.95, "eps": 1e-6},
    "no first moment": {"beta1": 0.0, "weight_decay": 0.01},
}


def problem(seed, size=37, dtype=np.float64):
    rng = np.random.default_rng(seed)
    scale = 10.0 ** rng.uniform(-9, 2, size)  # small gradients too: there eps matters
    return rng.standard_normal(size).astype(dtype), (rng.standard_normal((STEPS, size)) * scale).astype(dtype)


def trajectory(params, grads, **hyper):
    params, state = params.copy(), adam.init(params)
    points = []
    for step, grad in enumerate(grads):
        adam.update(params, grad, state, lr=0.1 / (1 + step), **hyper)
        points.append(params.copy())
    return np.array(points)


def algorithm_1(params, grads, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0, fault=None):
    """Kingma & Ba's Algorithm 1, line by line; the faults are what a wrong Adam gets wrong."""
    if fault == "v uses beta1":
        beta2 = beta1
    m, v, points = np.zeros_like(params), np.zeros_like(params), []
    for t, grad in enumerate(grads, start=1):
        lr = 0.1 / t
        if fault != "decay decoupled":
            grad = grad + weight_decay * params
        else:
            params = params - lr * weight_decay * params
        m = beta1 * m + (1 - beta1) * grad
        v = beta2 * v + (1 - beta2) * grad**2
        count = 1 if fault == "step never rises" else t + 1 if fault == "step begins at 2" else t
        m_hat = m / (1 - beta1**count)
        v_hat = v / (1 - beta2**count)
        root = np.sqrt(v_hat) + eps
        if fault == "eps inside the root":
            root = np.sqrt(v_hat + eps)
        if fault == "eps on the uncorrected root":
            root = np.sqrt(v_hat) + eps / np.sqrt(1 - beta2**count)
        params = params - lr * m_hat / root
        points.append(params)
    return np.array(points)


def assert_same_path(ours, theirs):
    np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-13)


def test_first_step_by_hand():
    # after one step m̂ = g and v̂ = g²: the step is lr·g/(|g| + eps)
    params = np.array([1.0, -2.0, 0.5])
    grads = np.array([3.0, -1e-3, 2e-8])
    start, state = params.copy(), adam.init(params)
    adam.update(params, grads, state, 0.1)
    np.testing.assert_allclose(start - params, 0.1 * grads / (np.abs(grads) + 1e-8), rtol=1e-13)
    np.testing.assert_allclose(state["m"], 0.1 * grads, rtol=1e-15)
    np.testing.assert_allclose(state["v"], 0.001 * grads**2, rtol=1e-13)
    assert int(state["step"]) == 1


def test_equal_gradients_step_by_lr():
    # m̂ = g and v̂ = g² at every step, so n steps move by n·lr whatever g is
    params = np.zeros(2)
    state = adam.init(params)
    for _ in range(50):
        adam.update(params, np.array([7.0, -0.3]), state, 0.01, eps=0.0)
    np.testing.assert_allclose(params, [-0.5, 0.5], rtol=1e-12)


@pytest.mark.parametrize("form", FORMS)
def test_algorithm_1(form):
    params, grads = problem(1)
    assert_same_path(trajectory(params, grads, **FORMS[form]), algorithm_1(params, grads, **FORMS[form]))


@pytest.mark.parametrize(
    "fault",
    [
        "step never rises",
        "step begins at 2",
        "v uses beta1",
        "eps inside the root",
        "eps on the uncorrected root",
        "decay decoupled",
    ],
)
def test_comparison_catches(fault):
    params, grads = problem(1)
    ours = trajectory(params, grads, **FORMS["decay"])
    with pytest.raises(AssertionError):
        assert_same_path(ours, algorithm_1(params, grads, fault=fault, **FORMS["decay"]))


def test_step_count_that_is_reset_is_caught():
    params, grads = problem(1)
    moved, state, points = params.copy(), adam.init(params), []
    for step, grad in enumerate(grads):
        state["step"][...] = 0
        adam.update(moved, grad, state, lr=0.1 / (1 + step))
        points.append(moved.copy())
    with pytest.raises(AssertionError):
        assert_same_path(np.array(points), algorithm_1(params, grads))


@pytest.mark.framework
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("form", FORMS)
def test_torch(form, dtype):
    torch = pytest.importorskip("torch")
    hyper = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.0} | FORMS[form]
    params, grads = problem(2, dtype=dtype)
    weight = torch.nn.Parameter(torch.from_numpy(params.copy()))
    optimizer = torch.optim.Adam(
        [weight], betas=(hyper["beta1"], hyper["beta2"]), eps=hyper["eps"], weight_decay=hyper["weight_decay"]
    )
    points = []
    for step, grad in enumerate(grads):
        optimizer.param_groups[0]["lr"] = 0.1 / (1 + step)
        weight.grad = torch.from_numpy(grad.copy())
        optimizer.step()
        points.append(weight.detach().numpy().copy())
    tolerance = 1e-14 if dtype is np.float64 else 2e-6
    np.testing.assert_allclose(
        trajectory(params, grads, **FORMS[form]), np.array(points), rtol=tolerance, atol=tolerance
    )


@pytest.mark.parametrize("form", FORMS)
def test_chunks_change_nothing(form, monkeypatch):
    params, grads = problem(3, size=101)
    whole = trajectory(params, grads, **FORMS[form])
    monkeypatch.setattr(adam, "CHUNK", 10)
    np.testing.assert_array_equal(trajectory(params, grads, **FORMS[form]), whole)


@pytest.mark.parametrize("form", FORMS)
def test_float32_stays_and_gradients_are_untouched(form):
    params, grads = problem(4, dtype=np.float32)
    buffer, state, grad = params, adam.init(params), grads[0].copy()
    adam.update(params, grads[0], state, 0.1, **FORMS[form])
    assert params is buffer
    assert params.dtype == state["m"].dtype == state["v"].dtype == np.float32
    assert state["step"].dtype == np.int64 and state["step"].shape == ()
    np.testing.assert_array_equal(grads[0], grad)


def test_wrong_arguments():
    params = np.zeros(3)
    state = adam.init(params)
    with pytest.raises(ValueError, match=r"gradients \(4,\)"):
        adam.update(params, np.zeros(4), state, 0.1)
    with pytest.raises(ValueError, match="flat buffers"):
        adam.update(np.zeros((3, 1)), np.zeros((3, 1)), adam.init(np.zeros((3, 1))), 0.1)
    with pytest.raises(ValueError, match="m float64"):
        adam.update(np.zeros(3, np.float32), np.zeros(3, np.float32), state, 0.1)
    with pytest.raises(ValueError, match=r"beta2 is 1\.0"):
        adam.update(params, np.zeros(3), state, 0.1, beta2=1.0)
    assert state["step"] == 0
