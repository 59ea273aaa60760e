"""AdamW against the paper's Algorithm 2, hand-computed steps and PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

from numpy_vit.training import adam, adamw

STEPS = 25
FORMS = {
    "default": {},
    "decay": {"weight_decay": 0.3},
    "no decay": {"weight_decay": 0.0},
    "betas": {"beta1": 0.8, "beta2": 0.95, "eps": 1e-6, "weight_decay": 0.05},
}


def problem(seed, size=37, dtype=np.float64):
    rng = np.random.default_rng(seed)
    scale = 10.0 ** rng.uniform(-9, 2, size)  # small gradients too: there eps matters
    return rng.standard_normal(size).astype(dtype), (rng.standard_normal((STEPS, size)) * scale).astype(dtype)


def trajectory(params, grads, update=adamw.update, **hyper):
    params, state = params.copy(), adamw.init(params)
    points = []
    for step, grad in enumerate(grads):
        update(params, grad, state, lr=0.1 / (1 + step), **hyper)
        points.append(params.copy())
    return np.array(points)


def algorithm_2(params, grads, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.01, fault=None):
    """Loshchilov & Hutter's Algorithm 2 with the decay times lr; the faults are what others get wrong."""
    if fault == "v uses beta1":
        beta2 = beta1
    m, v, points = np.zeros_like(params), np.zeros_like(params), []
    for t, grad in enumerate(grads, start=1):
        lr = 0.1 / t
        decay = lr * weight_decay * params
        if fault == "decay coupled":
            grad, decay = grad + weight_decay * params, 0.0
        if fault == "decay not times lr":
            decay = weight_decay * params
        m = beta1 * m + (1 - beta1) * grad
        v = beta2 * v + (1 - beta2) * grad**2
        count = 1 if fault == "step never rises" else t
        m_hat, v_hat = m / (1 - beta1**count), v / (1 - beta2**count)
        root = np.sqrt(v_hat + eps) if fault == "eps inside the root" else np.sqrt(v_hat) + eps
        if fault == "eps on the uncorrected root":
            root = np.sqrt(v_hat) + eps / np.sqrt(1 - beta2**count)
        params = params - decay - lr * m_hat / root
        points.append(params)
    return np.array(points)


def assert_same_path(ours, theirs):
    np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-13)


def test_decay_alone_by_hand():
    # without a gradient a step multiplies by 1 - lr·decay and the moments stay zero
    params = np.array([2.0, -4.0])
    state = adamw.init(params)
    for _ in range(3):
        adamw.update(params, np.zeros(2), state, 0.1, weight_decay=0.5)
    np.testing.assert_allclose(params, np.array([2.0, -4.0]) * 0.95**3, rtol=1e-15)
    assert not state["m"].any() and not state["v"].any() and state["step"] == 3


def test_eps_is_added_to_the_corrected_root():
    # p = 1, lr 0.1, decay 0.5: 0.95 after the decay.  g = 2e-8 beside eps = 1e-8: a step of 0.1·2/3 from there,
    # where eps on the uncorrected root (TensorFlow) makes it 0.1·2/(2 + 1/√0.001) = 0.1·0.0595.
    params = np.ones(1)
    adamw.update(params, np.array([2e-8]), adamw.init(params), 0.1, eps=1e-8, weight_decay=0.5)
    np.testing.assert_allclose(params, [0.95 - 0.2 / 3], rtol=1e-14)
    np.testing.assert_allclose(params, [0.883], atol=5e-4)
    other = algorithm_2(np.ones(1), [2e-8], weight_decay=0.5, fault="eps on the uncorrected root")
    np.testing.assert_allclose(other, [[0.944]], atol=5e-4)


@pytest.mark.parametrize("form", FORMS)
def test_algorithm_2(form):
    params, grads = problem(1)
    assert_same_path(trajectory(params, grads, **FORMS[form]), algorithm_2(params, grads, **FORMS[form]))


@pytest.mark.parametrize(
    "fault",
    [
        "step never rises",
        "v uses beta1",
        "eps inside the root",
        "eps on the uncorrected root",
        "decay coupled",
        "decay not times lr",
    ],
)
def test_comparison_catches(fault):
    params, grads = problem(1)
    ours = trajectory(params, grads, **FORMS["decay"])
    with pytest.raises(AssertionError):
        assert_same_path(ours, algorithm_2(params, grads, fault=fault, **FORMS["decay"]))


def test_adam_with_its_own_decay_is_caught():
    params, grads = problem(1)
    with pytest.raises(AssertionError):
        assert_same_path(
            trajectory(params, grads, update=adam.update, weight_decay=0.3),
            algorithm_2(params, grads, weight_decay=0.3),
        )


@pytest.mark.framework
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("form", FORMS)
def test_torch(form, dtype):
    torch = pytest.importorskip("torch")
    hyper = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.01} | FORMS[form]
    params, grads = problem(2, dtype=dtype)
    weight = torch.nn.Parameter(torch.from_numpy(params.copy()))
    optimizer = torch.optim.AdamW(
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


def test_float32_stays_and_gradients_are_untouched():
    params, grads = problem(4, dtype=np.float32)
    buffer, state, grad = params, adamw.init(params), grads[0].copy()
    adamw.update(params, grads[0], state, 0.1)
    assert params is buffer
    assert params.dtype == state["m"].dtype == state["v"].dtype == np.float32
    np.testing.assert_array_equal(grads[0], grad)


def test_wrong_arguments_change_nothing():
    params = np.ones(3)
    state = adamw.init(params)
    with pytest.raises(ValueError, match="flat buffers"):
        adamw.update(params, np.zeros(4), state, 0.1)
    with pytest.raises(ValueError, match=r"beta1 is -0\.1"):
        adamw.update(params, np.zeros(3), state, 0.1, beta1=-0.1)
    np.testing.assert_array_equal(params, np.ones(3))
    assert state["step"] == 0
