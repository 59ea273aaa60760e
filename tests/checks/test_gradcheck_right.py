"""Right backwards pass: over shapes, seeds and scales, and where the true gradient is zero."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from numpy_vit.checks import gradcheck


def linear(params, x):
    return x @ params["weight"].T + params["bias"], (params["weight"], x)


def linear_backward(dy, cache):
    weight, x = cache
    return dy @ weight, {"weight": dy.T @ x, "bias": dy.sum(axis=0)}


def layernorm(params, x):
    centred = x - x.mean(axis=-1, keepdims=True)
    rstd = 1 / np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + 1e-6)
    xhat = centred * rstd
    return xhat * params["weight"] + params["bias"], (xhat, rstd, params["weight"])


def layernorm_backward(dy, cache):
    xhat, rstd, weight = cache
    g = dy * weight
    dx = rstd * (g - g.mean(axis=-1, keepdims=True) - xhat * (g * xhat).mean(axis=-1, keepdims=True))
    return dx, {"weight": (dy * xhat).sum(axis=0), "bias": dy.sum(axis=0)}


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    y = e / e.sum(axis=-1, keepdims=True)
    return y, (y,)


def softmax_backward(dy, cache):
    (y,) = cache
    return y * (dy - (dy * y).sum(axis=-1, keepdims=True))


def square(x):
    return x * x, (x,)


def square_backward(dy, cache):
    (x,) = cache
    return 2 * x * dy


def dropout(x):
    kept = np.random.default_rng(7).random(x.shape) < 0.5
    return x * kept / 0.5, (kept,)


def dropout_backward(dy, cache):
    (kept,) = cache
    return dy * kept / 0.5


def cross_entropy(x):
    z = x - x.max(axis=-1, keepdims=True)
    log_p = z - np.log(np.exp(z).sum(axis=-1, keepdims=True))
    return float(-log_p[:, 0].mean()), (np.exp(log_p),)


def cross_entropy_backward(dloss, cache):
    (p,) = cache
    return dloss * (p - np.eye(p.shape[-1])[0]) / len(p)


PARAMETRIC = {"linear": (linear, linear_backward), "layernorm": (layernorm, layernorm_backward)}
PLAIN = {
    "softmax": (softmax, softmax_backward),
    "square": (square, square_backward),
    "dropout": (dropout, dropout_backward),
    "cross-entropy": (cross_entropy, cross_entropy_backward),
}
scales = st.sampled_from([1e-3, 1.0, 1e3])
seeds = st.integers(0, 2**32 - 1)
modes = st.sampled_from([None, 2])


@pytest.mark.parametrize("kind", PARAMETRIC)
@settings(max_examples=150, deadline=None)
@given(st.integers(1, 4), st.integers(1, 5), st.integers(1, 4), seeds, scales, scales, modes, st.booleans())
def test_layers_with_parameters(kind, batch, dim, out, seed, of_x, of_params, directions, ones):
    rng = np.random.default_rng(seed)
    out = out if kind == "linear" else dim
    shape = (out, dim) if kind == "linear" else (dim,)
    params = {"weight": of_params * rng.normal(size=shape), "bias": of_params * rng.normal(size=out)}
    x = of_x * rng.normal(size=(batch, dim))
    upstream = np.ones((batch, out)) if ones else None
    gradcheck(*PARAMETRIC[kind], params, x, upstream=upstream, directions=directions, rng=rng).raise_if_failed()


@pytest.mark.parametrize("kind", PLAIN)
@settings(max_examples=100, deadline=None)
@given(st.integers(1, 4), st.integers(1, 5), seeds, scales, modes)
def test_layers_without_parameters(kind, batch, dim, seed, scale, directions):
    rng = np.random.default_rng(seed)
    x = scale * rng.normal(size=(batch, dim))
    gradcheck(*PLAIN[kind], None, x, directions=directions, rng=rng).raise_if_failed()


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 4), st.integers(1, 24), seeds, scales, modes, st.sampled_from([0.0, 10.0]))
def test_layernorm_under_ones_has_a_gradient_of_zero(batch, dim, seed, scale, directions, offset):
    rng = np.random.default_rng(seed)
    x = scale * (rng.normal(size=(batch, dim)) + offset)
    params = {"weight": np.ones(dim), "bias": np.zeros(dim)}
    upstream = np.ones((batch, dim))
    gradcheck(layernorm, layernorm_backward, params, x, upstream=upstream, directions=directions).raise_if_failed()


@settings(max_examples=60, deadline=None)
@given(st.floats(0.1, 60), modes)
def test_a_confident_loss_has_a_gradient_of_nearly_zero(margin, directions):
    logits = np.array([[margin, 0.0, 0.1], [margin, -1.0, 0.5]])
    gradcheck(cross_entropy, cross_entropy_backward, None, logits, directions=directions).raise_if_failed()


@pytest.mark.parametrize("directions", [None, 1])
def test_trees_in_and_out(directions):
    """Attention-like: x is (q, {"k": ...}, integer ids), y is (scores, {"norm": scalar})."""

    def forward(params, x):
        q, other, ids = x
        scores = q @ other["k"].T + params["tables"][0]["rows"][ids]
        return (scores, {"norm": (q * q).sum()}), (q, other["k"], ids, params)

    def backward(dy, cache):
        q, k, ids, params = cache
        dscores, dnorm = dy[0], dy[1]["norm"]
        assert isinstance(dnorm, float)
        drows = np.zeros_like(params["tables"][0]["rows"])
        np.add.at(drows, ids, dscores)
        dx = (dscores @ k + 2 * dnorm * q, {"k": dscores.T @ q}, None)
        return dx, {"tables": [{"rows": drows}]}

    rng = np.random.default_rng(0)
    params = {"tables": [{"rows": rng.normal(size=(5, 4))}]}
    x = (rng.normal(size=(3, 2)), {"k": rng.normal(size=(4, 2))}, np.array([1, 1, 4]))
    found = gradcheck(forward, backward, params, x, directions=directions)
    found.raise_if_failed()
    names = [row.name for row in found.rows]
    assert names[:4] == ["x.0", "x.1.k", "x.2", "params.tables.0.rows"]
    assert found.rows[2].verdict == "not checked: not floating"
    assert found.worst_error < 1e-9


def test_inputs_are_converted_and_left_alone():
    x = np.ones((2, 3), np.float32)
    params = {"weight": np.ones((2, 3), np.float16), "bias": np.zeros(2, np.float32)}
    found = gradcheck(linear, linear_backward, params, x)
    assert found.ok and x.dtype == np.float32 and params["weight"].dtype == np.float16
    assert [row.checked for row in found.rows] == ["6 entries", "6 entries", "2 entries"]


def test_directions_reach_a_billionth_on_a_larger_layer():
    rng = np.random.default_rng(3)
    params = {"weight": rng.normal(size=(30, 40)), "bias": rng.normal(size=30)}
    found = gradcheck(linear, linear_backward, params, rng.normal(size=(8, 40)), directions=3)
    assert found.ok and found.rtol == 1e-9
    assert [row.name for row in found.rows] == ["x", "params.weight", "params.bias", "everything"]


def test_the_same_seed_gives_the_same_report():
    x = np.linspace(-1, 1, 6).reshape(2, 3)
    assert gradcheck(softmax, softmax_backward, None, x) == gradcheck(softmax, softmax_backward, None, x)


def test_a_step_may_leave_the_domain():
    found = gradcheck(lambda x: (np.log(x), x), lambda dy, x: dy / x, None, np.array([1e-4, 1.0, 1.0]))
    assert found.ok
