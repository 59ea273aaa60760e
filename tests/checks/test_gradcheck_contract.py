"""What a layer must keep to for its gradients to be checked at all, and how a report reads."""

from __future__ import annotations

import numpy as np
import pytest

from numpy_vit.checks import gradcheck

X = np.random.default_rng(0).normal(size=(4, 3))
PARAMS = {"weight": np.random.default_rng(1).normal(size=3)}


def scale(params, x):
    return x * params["weight"], (params["weight"], x)


def scale_backward(dy, cache):
    weight, x = cache
    return dy * weight, {"weight": (dy * x).sum(axis=0)}


def failing(forward, backward, params=PARAMS, x=X, **options):
    found = gradcheck(forward, backward, params, x, **options)
    assert not found.ok
    with pytest.raises(AssertionError) as caught:
        found.raise_if_failed()
    assert found.diagnosis in str(caught.value)
    return found


def test_a_forward_that_answers_float32():
    found = failing(lambda p, x: ((x * p["weight"]).astype(np.float32), (p["weight"], x)), scale_backward)
    assert found.diagnosis == "forward answers float32 for float64 input (y): something inside casts"


def test_float32_inside_the_forward():
    def forward(params, x):
        y, _ = scale({"weight": params["weight"].astype(np.float32)}, x.astype(np.float32))
        return y.astype(np.float64), (params["weight"], x)

    for directions in (None, 2):
        assert (
            "the forward is too rough (float32 inside"
            in failing(forward, scale_backward, directions=directions).diagnosis
        )


def test_float32_inside_the_backward():
    def backward(dy, cache):
        weight, x = cache
        return dy * weight, {"weight": (dy * x.astype(np.float32)).sum(axis=0)}

    for directions in (None, 2):
        text = failing(scale, backward, directions=directions).diagnosis
        assert "params.weight is right up to a relative error of" in text and "float32 inside" in text


def test_a_gradient_of_float32():
    def backward(dy, cache):
        dx, grads = scale_backward(dy, cache)
        return dx.astype(np.float32), grads

    text = failing(scale, backward).diagnosis
    assert text.startswith("x is float32 for float64 input: something inside the backward casts")


@pytest.mark.parametrize("name", ["x", "params.weight"])
def test_a_forward_that_writes_to_its_input(name):
    def forward(params, x):
        y = scale(params, x)
        target = x if name == "x" else params["weight"]
        target *= 2
        return y

    assert failing(forward, scale_backward).diagnosis == f"forward writes to its input: {name}"


def test_a_backward_that_writes_to_its_input():
    def backward(dy, cache):
        dy *= cache[0]
        return dy, scale_backward(dy / cache[0], cache)[1]

    assert failing(scale, backward).diagnosis == "backward writes to its input: dy"


def test_a_forward_that_draws_anew():
    rng = np.random.default_rng(0)

    def forward(params, x):
        kept = rng.random(x.shape) < 0.5
        return x * kept * params["weight"], (params["weight"] * kept, x * kept)

    assert "not deterministic" in failing(forward, scale_backward).diagnosis


def test_answers_that_are_not_finite():
    assert "NaN or infinity" in failing(lambda p, x: (x * np.nan, None), scale_backward).diagnosis
    text = failing(scale, lambda dy, cache: (dy * np.nan, scale_backward(dy, cache)[1])).diagnosis
    assert text.startswith("x has NaN or infinite entries")


def test_keys_and_shapes_of_gradients():
    def answering(grads):
        return failing(scale, lambda dy, cache: (dy * cache[0], grads(dy * cache[1]))).diagnosis

    assert answering(lambda g: {}).startswith("params.weight is missing from the gradients")
    extra = answering(lambda g: {"weight": g.sum(axis=0), "bias": g.sum(axis=0)})
    assert extra.startswith("params.bias is a gradient of nothing")
    unsummed = answering(lambda g: {"weight": g})
    assert "params.weight is not summed over the batch: it has shape (4, 3) instead of (3,)" in unsummed
    assert "params.weight has the wrong shape" in answering(lambda g: {"weight": g.sum()})


def test_a_transposed_shape():
    def forward(params, x):
        return x @ params["weight"].T, (params["weight"], x)

    def backward(dy, cache):
        weight, x = cache
        return dy @ weight, {"weight": x.T @ dy}

    text = failing(forward, backward, {"weight": np.ones((2, 3))}).diagnosis
    assert "params.weight is transposed: it has shape (3, 2) instead of (2, 3)" in text


def test_no_input_gradient_is_said():
    ids = np.array([0, 2, 2])

    def forward(params, ids):
        return params["weight"][ids], (ids,)

    def backward(dy, cache):
        dweight = np.zeros(3)
        np.add.at(dweight, cache[0], dy)
        return None, {"weight": dweight}

    found = gradcheck(forward, backward, PARAMS, ids)
    assert found.ok and "not checked: not floating" in str(found)
    found = gradcheck(scale, lambda dy, cache: (None, scale_backward(dy, cache)[1]), PARAMS, X)
    assert found.ok and "not checked: backward answers no gradient for it" in str(found)


def test_nothing_to_check_is_no_success():
    found = gradcheck(lambda x: (x * 2.0, None), lambda dy, cache: None, None, X)
    assert not found.ok and "nothing was checked" in found.diagnosis


def test_wrong_calls():
    with pytest.raises(ValueError, match="directions"):
        gradcheck(scale, scale_backward, PARAMS, X, directions=0)
    with pytest.raises(ValueError, match=r"y has shape \(4, 3\), upstream shape \(4,\)"):
        gradcheck(scale, scale_backward, PARAMS, X, upstream=np.ones(4))
    with pytest.raises(TypeError, match=r"forward must answer \(y, cache\)"):
        gradcheck(lambda p, x: x, scale_backward, PARAMS, X)
    with pytest.raises(TypeError, match=r"backward must answer \(dx, grads\)"):
        gradcheck(scale, lambda dy, cache: dy, PARAMS, X)
    with pytest.raises(TypeError, match="complex"):
        gradcheck(scale, scale_backward, PARAMS, X * 1j)


def test_the_report_reads_well():
    def backward(dy, cache):
        dx, grads = scale_backward(dy, cache)
        grads["weight"][1] += 0.5
        return dx, grads

    found = failing(scale, backward, name="scale")
    lines = str(found).splitlines()
    assert lines[0].startswith("scale: FAILED (worst relative error ")
    assert lines[1].split()[:3] == ["x", "12", "entries"] and lines[1].endswith("ok")
    assert lines[2].split()[:3] == ["params.weight", "3", "entries"] and lines[2].endswith("is wrong")
    assert lines[3].startswith("worst: params.weight[1]: analytic ")
    assert lines[4] == "params.weight is right except at 1 of axis 0"
    worst = found.worst
    assert worst is not None and worst.index == (1,)
    assert worst.analytic - worst.numeric == pytest.approx(0.5)
    assert str(gradcheck(scale, scale_backward, PARAMS, X, name="scale")).startswith("scale: ok (worst")
