"""Pooling by the class token, by the mean and by attention."""

from __future__ import annotations

import math

import numpy as np
import pytest

from numpy_vit.layers import attention_pool, block, mean_pool, token_pool

CONFIG = block.Config(num_heads=2)


@pytest.fixture
def x():
    return np.random.default_rng(0).standard_normal((3, 6, 4))


def test_the_class_token(x):
    y, cache = token_pool.forward(x)
    np.testing.assert_array_equal(y, x[:, 0])
    dx = token_pool.backward(y, cache)
    np.testing.assert_array_equal(dx[:, 0], x[:, 0])
    assert (dx[:, 1:] == 0).all()


@pytest.mark.parametrize("first", [0, 1, 5])
def test_the_mean_of_the_patches(x, first):
    y, cache = mean_pool.forward(x, first)
    dy = np.random.default_rng(1).standard_normal(y.shape)
    dx = mean_pool.backward(dy, cache)
    for b, i in np.ndindex(3, 4):
        assert y[b, i] == pytest.approx(math.fsum(x[b, first:, i]) / (6 - first), rel=1e-14)
        np.testing.assert_allclose(dx[b, first:, i], dy[b, i] / (6 - first), rtol=1e-15)
    assert (dx[:, :first] == 0).all()
    assert np.vdot(y, dy) == pytest.approx(np.vdot(x, dx), rel=1e-12)  # linear: <P x, dy> = <x, Pᵀ dy>


@pytest.fixture
def params():
    rng = np.random.default_rng(2)
    made = attention_pool.init(4, 5, rng, np.float64)
    for part in (made["q"], made["kv"], made["proj"], made["norm"], made["mlp"]["fc1"], made["mlp"]["fc2"]):
        for name, leaf in part.items():
            part[name] = leaf + rng.standard_normal(leaf.shape)
    return made


def naive_attention_pool(params, x, heads):
    """One sample at a time, one head at a time."""

    def linear(part, rows):
        return rows @ part["weight"].T + part["bias"]

    y, D = [], x.shape[-1]
    d = D // heads
    query = linear(params["q"], params["latent"][0, 0])
    for sample in x:
        keys_values = linear(params["kv"], sample)
        merged = np.zeros(D)
        for h in range(heads):
            own = slice(h * d, (h + 1) * d)
            scores = [query[own] @ key[own] / math.sqrt(d) for key in keys_values[:, :D]]
            weights = [math.exp(score) for score in scores]
            values = keys_values[:, D:][:, own]
            merged[own] = sum(w * value for w, value in zip(weights, values, strict=True)) / sum(weights)
        z = linear(params["proj"], merged)
        normed = (z - z.mean()) / math.sqrt(z.var() + CONFIG.eps) * params["norm"]["weight"] + params["norm"]["bias"]
        hidden = linear(params["mlp"]["fc1"], normed)
        hidden = np.array([0.5 * u * math.erfc(-u / math.sqrt(2)) for u in hidden.tolist()])
        y.append(z + linear(params["mlp"]["fc2"], hidden))
    return np.array(y)


@pytest.mark.parametrize("first", [0, 2])
def test_attention_pool_against_loops(params, x, first):
    y, _ = attention_pool.forward(params, x, CONFIG, first)
    np.testing.assert_allclose(y, naive_attention_pool(params, x[:, first:], 2), rtol=1e-11, atol=1e-12)


def test_attention_pool_does_not_see_order_or_prefix(params, x):
    y, cache = attention_pool.forward(params, x, CONFIG, 2)
    shuffled = np.concatenate([x[:, :2] + 1, x[:, 2:][:, [2, 0, 3, 1]]], axis=1)
    np.testing.assert_allclose(attention_pool.forward(params, shuffled, CONFIG, 2)[0], y, rtol=1e-12, atol=1e-13)
    dx, grads = attention_pool.backward(np.ones_like(y), cache)
    assert (dx[:, :2] == 0).all() and (dx[:, 2:] != 0).all()
    key_bias, value_bias = grads["kv"]["bias"][:4], grads["kv"]["bias"][4:]
    assert np.abs(key_bias).max() < 1e-13 < 1e-6 < np.abs(value_bias).min()
