"""SGD against hand-computed steps, a restatement and PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

from numpy_vit.training import sgd

STEPS = 25
FORMS = {
    "plain": {},
    "decay": {"weight_decay": 0.1},
    "momentum": {"momentum": 0.9},
    "momentum and decay": {"momentum": 0.9, "weight_decay": 0.1},
    "nesterov": {"momentum": 0.9, "nesterov": True},
    "nesterov and decay": {"momentum": 0.8, "nesterov": True, "weight_decay": 0.05},
}


def problem(seed, size=37, dtype=np.float64):
    rng = np.random.default_rng(seed)
    grads = rng.standard_normal((STEPS, size)) * np.exp(rng.standard_normal(size))
    return rng.standard_normal(size).astype(dtype), grads.astype(dtype)


def trajectory(update, params, grads, **hyper):
    params, state = params.copy(), sgd.init(params)
    points = []
    for step, grad in enumerate(grads):
        update(params, grad, state, lr=0.1 / (1 + step), **hyper)
        points.append(params.copy())
    return np.array(points)


def restated(params, grads, lr, momentum=0.0, nesterov=False, weight_decay=0.0, fault=None):
    """The velocity form: v is the buffer; the faults are what a wrong SGD gets wrong."""
    params, velocity, points = params.copy(), None, []
    for step, grad in enumerate(grads):
        grad = grad + weight_decay * params
        if velocity is None:
            velocity = grad if fault != "first buffer damped" else (1 - momentum) * grad
        else:
            velocity = momentum * velocity + (1 - momentum if fault == "damped" else 1) * grad
        direction = grad + momentum * velocity if nesterov else velocity
        if fault == "decay forgotten":
            direction = direction - weight_decay * params
        params = params - lr / (1 + step) * direction
        points.append(params)
    return np.array(points)


def assert_same_path(ours, theirs):
    np.testing.assert_allclose(ours, theirs, rtol=1e-13, atol=1e-14)


def test_three_steps_by_hand():
    # gradient 1, lr 0.1, momentum 0.5: the buffer is 1, 1.5, 1.75
    params, state = np.array([1.0]), sgd.init(np.array([1.0]))
    seen = []
    for _ in range(3):
        sgd.update(params, np.ones(1), state, 0.1, momentum=0.5)
        seen.append(float(params[0]))
    np.testing.assert_allclose(seen, [0.9, 0.75, 0.575], rtol=1e-15)
    assert int(state["step"]) == 3 and state["momentum"][0] == 1.75


def test_nesterov_first_step_by_hand():
    # g = 2 + 0.5·1 = 2.5, b = 2.5, direction 2.5 + 0.9·2.5 = 4.75
    params = np.array([1.0])
    sgd.update(params, np.array([2.0]), sgd.init(params), 0.1, momentum=0.9, nesterov=True, weight_decay=0.5)
    np.testing.assert_allclose(params, [0.525], rtol=1e-15)


@pytest.mark.parametrize("form", FORMS)
def test_restatement(form):
    params, grads = problem(1)
    assert_same_path(trajectory(sgd.update, params, grads, **FORMS[form]), restated(params, grads, 0.1, **FORMS[form]))


@pytest.mark.parametrize("fault", ["damped", "first buffer damped", "decay forgotten"])
def test_comparison_catches(fault):
    params, grads = problem(1)
    hyper = FORMS["momentum and decay"]
    ours = trajectory(sgd.update, params, grads, **hyper)
    with pytest.raises(AssertionError):
        assert_same_path(ours, restated(params, grads, 0.1, fault=fault, **hyper))


@pytest.mark.framework
@pytest.mark.parametrize("form", FORMS)
def test_torch(form):
    torch = pytest.importorskip("torch")
    params, grads = problem(2)
    weight = torch.nn.Parameter(torch.from_numpy(params.copy()))
    optimizer = torch.optim.SGD([weight], lr=0.1, **FORMS[form])
    points = []
    for step, grad in enumerate(grads):
        optimizer.param_groups[0]["lr"] = 0.1 / (1 + step)
        weight.grad = torch.from_numpy(grad.copy())
        optimizer.step()
        points.append(weight.detach().numpy().copy())
    np.testing.assert_allclose(
        trajectory(sgd.update, params, grads, **FORMS[form]), np.array(points), rtol=1e-14, atol=1e-15
    )


@pytest.mark.parametrize("form", FORMS)
def test_chunks_change_nothing(form, monkeypatch):
    params, grads = problem(3, size=101)
    whole = trajectory(sgd.update, params, grads, **FORMS[form])
    monkeypatch.setattr(sgd, "CHUNK", 10)
    np.testing.assert_array_equal(trajectory(sgd.update, params, grads, **FORMS[form]), whole)


@pytest.mark.parametrize("form", FORMS)
def test_float32_stays_and_gradients_are_untouched(form):
    params, grads = problem(4, dtype=np.float32)
    state, grad = sgd.init(params), grads[0].copy()
    buffer = params
    sgd.update(params, grads[0], state, 0.1, **FORMS[form])
    assert params is buffer and params.dtype == state["momentum"].dtype == np.float32
    assert state["step"].dtype == np.int64 and state["step"].shape == ()
    np.testing.assert_array_equal(grads[0], grad)


def test_wrong_arguments():
    params = np.zeros(3)
    state = sgd.init(params)
    with pytest.raises(ValueError, match="flat buffers"):
        sgd.update(params, np.zeros(4), state, 0.1)
    with pytest.raises(ValueError, match="one dtype"):
        sgd.update(params, np.zeros(3, np.float32), state, 0.1)
    with pytest.raises(ValueError, match=r"momentum is 1\.0"):
        sgd.update(params, np.zeros(3), state, 0.1, momentum=1.0)
    with pytest.raises(ValueError, match="nesterov"):
        sgd.update(params, np.zeros(3), state, 0.1, nesterov=True)
    assert state["step"] == 0
