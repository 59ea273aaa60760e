"""Negative controls: backwards broken on purpose are caught, and the diagnosis says how."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from numpy_vit.checks import gradcheck

BATCH, DIM, OUT = 5, 3, 4


def linear(params, x):
    return x @ params["weight"].T + params["bias"], (params["weight"], x)


def linear_backward(dy, cache):
    weight, x = cache
    return dy @ weight, {"weight": dy.T @ x, "bias": dy.sum(axis=0)}


def inputs(seed=0, of_x=1.0, of_params=1.0, out=OUT):
    rng = np.random.default_rng(seed)
    params = {"weight": of_params * rng.normal(size=(out, DIM)), "bias": of_params * rng.normal(size=out)}
    return params, of_x * rng.normal(size=(BATCH, DIM))


def broken(change):
    """A linear layer's backward whose gradients, one dict of x, weight and bias, go through `change`."""

    def backward(dy, cache):
        dx, grads = linear_backward(dy, cache)
        changed = {"x": dx, **grads, **change({"x": dx, **grads}, dy, cache)}
        return changed.pop("x"), changed

    return backward


def says(change, *, directions=None, out=OUT):
    found = gradcheck(linear, broken(change), *inputs(out=out), directions=directions)
    assert not found.ok
    return found.diagnosis


ONLY_WEIGHT = "\nthe input gradient is right while these are wrong: params.weight"
ONLY_X = "\nx is wrong while all parameter gradients are right"


@pytest.mark.parametrize("directions", [None, 2])
@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda g, dy, c: {"weight": -g["weight"]}, "params.weight has the wrong sign" + ONLY_WEIGHT),
        (lambda g, dy, c: {"weight": 3 * g["weight"]}, "params.weight is 3 times too large" + ONLY_WEIGHT),
        (
            lambda g, dy, c: {"weight": -2 * g["weight"]},
            "params.weight has the wrong sign and is 2 times too large" + ONLY_WEIGHT,
        ),
        (
            lambda g, dy, c: {"weight": g["weight"] / 3},
            "params.weight is 3 times too small (a factor of 1/3)" + ONLY_WEIGHT,
        ),
        (
            lambda g, dy, c: {"x": g["x"] * 0.75},
            "x is 1.33333 times too small (a factor of 0.75)" + ONLY_X,
        ),
        (
            lambda g, dy, c: {"weight": g["weight"] * BATCH},
            "params.weight is 5 times too large: multiplied by the batch size" + ONLY_WEIGHT,
        ),
        (
            lambda g, dy, c: {"x": g["x"] / BATCH},
            "x is 5 times too small (a factor of 1/5): divided by the batch size" + ONLY_X,
        ),
        (lambda g, dy, c: {"x": 1.001 * g["x"]}, "x is 1.001 times too large" + ONLY_X),
        (lambda g, dy, c: {"x": 0 * g["x"]}, "x is zero: never computed" + ONLY_X),
        (
            lambda g, dy, c: {"weight": np.outer(dy[2], c[1][2])},
            "params.weight is that of sample 2 alone: it is not summed over the batch" + ONLY_WEIGHT,
        ),
        (
            lambda g, dy, c: {"x": np.where(np.arange(BATCH)[:, None] == 1, g["x"], 0)},
            "x is right at sample 1 only and zero elsewhere" + ONLY_X,
        ),
        (
            lambda g, dy, c: {"x": np.where(np.arange(BATCH)[:, None] == 1, g["x"], 7 * g["x"] ** 2)},
            "x is right only at 1 of axis 0" + ONLY_X,
        ),
        (
            lambda g, dy, c: {"x": np.where(np.arange(BATCH)[:, None] == 1, 7 * g["x"] ** 2, g["x"])},
            "x is right except at 1 of axis 0" + ONLY_X,
        ),
        (
            lambda g, dy, c: {"weight": g["weight"].T.reshape(OUT, DIM)},
            "params.weight is transposed and then reshaped to the right shape" + ONLY_WEIGHT,
        ),
        (
            lambda g, dy, c: {"weight": g["weight"][::-1, ::-1]},
            "params.weight has the right entries in the wrong places" + ONLY_WEIGHT,
        ),
        (
            lambda g, dy, c: {"weight": g["weight"] - g["weight"].mean(axis=-1, keepdims=True)},
            "params.weight misses a constant along axis -1 (a dropped mean or sum term)" + ONLY_WEIGHT,
        ),
        (
            lambda g, dy, c: {"weight": g["weight"] - g["weight"].mean(axis=0)},
            "params.weight misses a constant along axis -2 (a dropped mean or sum term)" + ONLY_WEIGHT,
        ),
        (
            lambda g, dy, c: {"x": np.sin(g["x"])},
            "x differs without a simple pattern" + ONLY_X,
        ),
        (
            lambda g, dy, c: {"x": 2 * g["x"], "weight": -g["weight"]},
            "x is 2 times too large\nparams.weight has the wrong sign",
        ),
    ],
)
def test_the_diagnosis(change, text, directions):
    assert says(change, directions=directions) == text


def test_a_square_transpose():
    text = says(lambda g, dy, c: {"weight": g["weight"].T}, out=DIM)
    assert text == "params.weight is transposed" + ONLY_WEIGHT


def test_one_number_has_no_pattern_but_a_simple_one():
    """Any two numbers have a ratio: it is named only where it is whole."""
    assert "3 times too large" in says(lambda g, dy, c: {"bias": 3 * g["bias"]}, out=1)
    assert "without a simple pattern" in says(lambda g, dy, c: {"bias": 1.7 * g["bias"]}, out=1)


def layernorm(x):
    centred = x - x.mean(axis=-1, keepdims=True)
    rstd = 1 / np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + 1e-6)
    return centred * rstd, (centred * rstd, rstd)


@pytest.mark.parametrize("directions", [None, 2])
def test_dropped_terms_of_layernorm(directions):
    def without_mean(dy, cache):
        xhat, rstd = cache
        return rstd * (dy - xhat * (dy * xhat).mean(axis=-1, keepdims=True))

    def without_projection(dy, cache):
        _, rstd = cache
        return rstd * (dy - dy.mean(axis=-1, keepdims=True))

    x = np.random.default_rng(0).normal(size=(2, 3, 5))
    found = gradcheck(layernorm, without_mean, None, x, directions=directions)
    assert found.diagnosis == "x misses a constant along axis -1 (a dropped mean or sum term)"
    found = gradcheck(layernorm, without_projection, None, x, directions=directions)
    assert found.diagnosis == "x misses a multiple of the output y along axis -1 (a dropped y·sum term)"


def test_a_dropped_term_of_softmax():
    def softmax(x):
        y = np.exp(x) / np.exp(x).sum(axis=-1, keepdims=True)
        return y, y

    found = gradcheck(softmax, lambda dy, y: y * dy, None, np.random.default_rng(0).normal(size=(3, 4)))
    assert found.diagnosis == "x misses a multiple of the output y along axis -1 (a dropped y·sum term)"


def test_a_gradient_where_there_is_none():
    found = gradcheck(lambda x: (x * 0 + 1.0, x), lambda dy, x: dy, None, np.ones(3))
    assert found.diagnosis == "x is not zero, although the true gradient is"


def test_a_large_array_is_sampled():
    rng = np.random.default_rng(0)
    params = {"weight": rng.normal(size=(60, 50)), "bias": rng.normal(size=60)}
    backward = broken(lambda g, dy, c: {"weight": 1.001 * g["weight"]})
    found = gradcheck(linear, backward, params, rng.normal(size=(2, 50)), directions=1)
    assert "params.weight is 1.001 times too large" in found.diagnosis


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([1e-3, 1.0, 1e3]),
    st.sampled_from([1e-3, 1.0, 1e3]),
    st.sampled_from(["x", "weight", "bias"]),
    st.sampled_from([None, 1]),
)
def test_a_thousandth_is_caught_on_any_array_at_any_scale(seed, of_x, of_params, name, directions):
    backward = broken(lambda g, dy, c: {name: 1.001 * g[name]})
    params, x = inputs(seed, of_x, of_params)
    found = gradcheck(linear, backward, params, x, directions=directions, rng=np.random.default_rng(seed))
    where = name if name == "x" else f"params.{name}"
    wrong = [row.name for row in found.rows if not row.ok]
    assert where in wrong and set(wrong) <= {where, "everything"}
    assert f"{where} is 1.001 times too large" in found.diagnosis
