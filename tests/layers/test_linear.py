"""The linear layer against loops, and its adjoint identity."""

from __future__ import annotations

import numpy as np
import pytest

from numpy_vit.layers import linear


@pytest.fixture
def made():
    rng = np.random.default_rng(0)
    params = {"weight": rng.standard_normal((5, 4)), "bias": rng.standard_normal(5)}
    return params, rng.standard_normal((2, 3, 4)), rng.standard_normal((2, 3, 5))


def test_forward_and_backward_against_loops(made):
    params, x, dy = made
    weight, bias = params["weight"], params["bias"]
    y, dx = np.zeros((2, 3, 5)), np.zeros((2, 3, 4))
    dweight, dbias = np.zeros((5, 4)), np.zeros(5)
    for b in range(2):
        for t in range(3):
            for o in range(5):
                y[b, t, o] = bias[o]
                dbias[o] += dy[b, t, o]
                for i in range(4):
                    y[b, t, o] += weight[o, i] * x[b, t, i]
                    dx[b, t, i] += dy[b, t, o] * weight[o, i]
                    dweight[o, i] += dy[b, t, o] * x[b, t, i]
    found, cache = linear.forward(params, x)
    np.testing.assert_allclose(found, y, rtol=1e-13, atol=1e-13)
    found, grads = linear.backward(dy, cache)
    np.testing.assert_allclose(found, dx, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(grads["weight"], dweight, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(grads["bias"], dbias, rtol=1e-13, atol=1e-13)


def test_a_layer_without_bias_is_linear_and_backward_is_its_adjoint(made):
    params, x, dy = made
    params = {"weight": params["weight"]}
    y, cache = linear.forward(params, x)
    dx, grads = linear.backward(dy, cache)
    assert set(grads) == {"weight"}
    np.testing.assert_allclose(np.vdot(y, dy), np.vdot(x, dx), rtol=1e-13)  # <W x, dy> = <x, Wᵀ dy>
    np.testing.assert_allclose(np.vdot(y, dy), np.vdot(params["weight"], grads["weight"]), rtol=1e-13)


def test_the_halves_of_backward_are_backward(made):
    params, x, dy = made
    _, cache = linear.forward(params, x)
    dx, grads = linear.backward(dy, cache)
    np.testing.assert_array_equal(linear.input_gradient(dy, cache), dx)
    alone = linear.parameter_gradients(dy, cache)
    assert alone.keys() == grads.keys()
    for key in grads:
        np.testing.assert_array_equal(alone[key], grads[key])


def test_rows_are_handled_alike_whatever_the_leading_axes(made):
    params, x, _ = made
    y, _ = linear.forward(params, x)
    np.testing.assert_allclose(linear.forward(params, x[1, 2])[0], y[1, 2], rtol=1e-13)
    np.testing.assert_allclose(linear.forward(params, x[1])[0], y[1], rtol=1e-13)


def test_an_empty_batch_has_gradients_of_zero(made):
    y, cache = linear.forward(made[0], np.zeros((0, 3, 4)))
    dx, grads = linear.backward(y, cache)
    assert (y.shape, dx.shape) == ((0, 3, 5), (0, 3, 4))
    np.testing.assert_array_equal(grads["weight"], np.zeros((5, 4)))
    np.testing.assert_array_equal(grads["bias"], np.zeros(5))


def test_a_wrong_width_names_both(made):
    with pytest.raises(ValueError, match=r"3 features.*\(5, 4\).*takes 4"):
        linear.forward(made[0], np.zeros((2, 3)))
