"""Attention against loops over every head, query and key in plain Python."""

from __future__ import annotations

import math

import numpy as np
import pytest

from numpy_vit.layers import attention, dot_product_attention, layernorm

B, N, D, HEADS = 2, 5, 6, 3
d = D // HEADS


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def random_params(rng, **choices):
    params = attention.init(D, HEADS, rng, dtype=np.float64, **choices)
    for part in params.values():
        for name, leaf in part.items():
            part[name] = leaf + rng.standard_normal(leaf.shape)
    return params


def one_head(q, k, v, bias):
    """Return softmax(q kᵀ/√d + bias) v and the weights, for lists of rows."""
    width, weights, o = len(q[0]), [], []
    for m, query in enumerate(q):
        scores = [math.fsum(a * b for a, b in zip(query, key, strict=True)) / math.sqrt(width) for key in k]
        scores = [score + bias[m][n] for n, score in enumerate(scores)]
        exponentials = [math.exp(score - max(scores)) for score in scores]
        weights.append([e / math.fsum(exponentials) for e in exponentials])
        o.append([math.fsum(p * row[i] for p, row in zip(weights[-1], v, strict=True)) for i in range(len(v[0]))])
    return o, weights


def by_loops(params, x, bias):
    """Self-attention head after head; the rows of qkv are q's, k's and v's, head after head in each."""
    y, weights = np.zeros_like(x), np.zeros((B, HEADS, N, N))
    weight, shift = params["qkv"]["weight"], params["qkv"].get("bias", np.zeros(3 * D))
    for b in range(B):
        merged = np.zeros((N, D))
        for h in range(HEADS):
            thirds = []
            for third in range(3):
                rows = slice(third * D + h * d, third * D + (h + 1) * d)
                part = x[b] @ weight[rows].T + shift[rows]
                norm = {0: "q_norm", 1: "k_norm"}.get(third)
                if norm in params:
                    part = layernorm.forward(params[norm], part)[0]
                thirds.append(part.tolist())
            merged[:, h * d : (h + 1) * d], weights[b, h] = one_head(*thirds, bias[h].tolist())
        y[b] = merged @ params["proj"]["weight"].T + params["proj"]["bias"]
    return y, weights


@pytest.mark.parametrize("choices", [{}, {"qkv_bias": False}, {"qk_norm": True}])
@pytest.mark.parametrize("with_bias", [False, True])
def test_forward_is_the_loop_over_heads(rng, choices, with_bias):
    params, x = random_params(rng, **choices), rng.standard_normal((B, N, D))
    bias = rng.standard_normal((HEADS, N, N))
    y, cache = attention.forward(params, x, HEADS, bias if with_bias else None)
    expected, weights = by_loops(params, x, bias if with_bias else np.zeros_like(bias))
    np.testing.assert_allclose(y, expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(attention.weights(cache), weights, rtol=1e-10)
    np.testing.assert_allclose(attention.weights(cache).sum(axis=-1), 1, rtol=1e-14)


def test_large_logits(rng):
    # A maximum over the wrong axis would underflow whole rows here.
    q, k, v = (rng.standard_normal((B, HEADS, N, d)) for _ in range(3))
    q *= np.array([1e3, 1.0, 1e-3, 1e2, 10.0])[:, None]
    o, _ = dot_product_attention.forward(q, k, v)
    for b, h in np.ndindex(B, HEADS):
        expected, _ = one_head(q[b, h].tolist(), k[b, h].tolist(), v[b, h].tolist(), np.zeros((N, N)).tolist())
        np.testing.assert_allclose(o[b, h], expected, rtol=1e-9, atol=1e-12)


def test_scores_by_hand():
    # One query that matches the first key: scores 4·1/√4 = 2 and 0, so the weights are e²/(e²+1) and 1/(e²+1).
    q = np.ones((1, 1, 1, 4))
    k = np.array([[1.0, 1, 1, 1], [0, 0, 0, 0]])[None, None]
    v = np.array([[1.0], [0.0]])[None, None]
    o, cache = dot_product_attention.forward(q, k, v)
    p = math.exp(2) / (math.exp(2) + 1)
    assert o.item() == pytest.approx(p, rel=1e-15)
    np.testing.assert_allclose(dot_product_attention.weights(cache).ravel(), [p, 1 - p], rtol=1e-14)


def test_equal_keys_give_the_mean_of_the_values(rng):
    q, v = rng.standard_normal((B, HEADS, 2, d)), rng.standard_normal((B, HEADS, N, 4))
    k = np.repeat(rng.standard_normal((B, HEADS, 1, d)), N, axis=2)
    o, _ = dot_product_attention.forward(q, k, v)
    np.testing.assert_allclose(o, np.repeat(v.mean(axis=2, keepdims=True), 2, axis=2), rtol=1e-12, atol=1e-14)


def test_permuting_the_tokens_permutes_the_outputs(rng):
    params, x, order = random_params(rng), rng.standard_normal((B, N, D)), rng.permutation(N)
    y, cache = attention.forward(params, x, HEADS)
    permuted, permuted_cache = attention.forward(params, x[:, order], HEADS)
    np.testing.assert_allclose(permuted, y[:, order], rtol=1e-12, atol=1e-13)
    dy = rng.standard_normal(y.shape)
    dx, _, grads = attention.backward(dy, cache)
    permuted_dx, _, permuted_grads = attention.backward(dy[:, order], permuted_cache)
    np.testing.assert_allclose(permuted_dx, dx[:, order], rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(permuted_grads["qkv"]["weight"], grads["qkv"]["weight"], rtol=1e-11, atol=1e-12)


def test_head_after_head(rng):
    x = rng.standard_normal((B, N, D))
    np.testing.assert_array_equal(attention.split_heads(x, HEADS)[:, 1], x[..., d : 2 * d])
    np.testing.assert_array_equal(attention.merge_heads(attention.split_heads(x, HEADS)), x)
    params = random_params(rng)
    params["proj"] = {"weight": np.eye(D), "bias": np.zeros(D)}
    params["qkv"]["weight"][2 * D + d : 2 * D + 2 * d] = 0  # the values of head 1
    params["qkv"]["bias"][2 * D + d : 2 * D + 2 * d] = 0
    y, _ = attention.forward(params, x, HEADS)
    assert (y[..., d : 2 * d] == 0).all()
    assert (y[..., :d] != 0).all() and (y[..., 2 * d :] != 0).all()


def test_a_causal_mask_hides_later_tokens(rng):
    params, x = random_params(rng), rng.standard_normal((B, N, D))
    mask = np.where(np.tri(N, dtype=bool), 0.0, -np.inf)
    y, cache = attention.forward(params, x, HEADS, mask)
    changed = x.copy()
    changed[:, 3:] = rng.standard_normal((B, N - 3, D))
    y_changed, _ = attention.forward(params, changed, HEADS, mask)
    np.testing.assert_array_equal(y_changed[:, :3], y[:, :3])
    assert (attention.weights(cache)[..., ~np.tri(N, dtype=bool)] == 0).all()
    dy = rng.standard_normal(y.shape)
    dy[:, 3:] = 0
    dx, _, _ = attention.backward(dy, cache)
    assert (dx[:, 3:] == 0).all() and (dx[:, :3] != 0).all()


def test_the_key_bias_has_no_gradient_without_a_k_norm(rng):
    x, dy = rng.standard_normal((B, N, D)), rng.standard_normal((B, N, D))
    for qk_norm in (False, True):
        _, cache = attention.forward(random_params(rng, qk_norm=qk_norm), x, HEADS)
        _, _, grads = attention.backward(dy, cache)
        query, key, value = np.abs(grads["qkv"]["bias"]).reshape(3, D)
        assert query.min() > 1e-6 and value.min() > 1e-6
        assert (key.min() > 1e-6) if qk_norm else (key.max() < 1e-13)
        if qk_norm:  # and with one it is the norm's own bias that shifts all scores of a query alike
            assert np.abs(grads["k_norm"]["bias"]).max() < 1e-13


def test_a_broadcast_bias_gets_the_sum_of_what_it_was_added_to(rng):
    q, k, v = (rng.standard_normal((B, HEADS, N, d)) for _ in range(3))
    do, table = rng.standard_normal((B, HEADS, N, d)), rng.standard_normal((HEADS, 1, N))
    _, cache = dot_product_attention.forward(q, k, v, np.broadcast_to(table, (B, HEADS, N, N)))
    *_, full = dot_product_attention.backward(do, cache)
    _, cache = dot_product_attention.forward(q, k, v, table)
    *_, summed = dot_product_attention.backward(do, cache)
    assert summed.shape == table.shape
    np.testing.assert_allclose(summed, full.sum(axis=(0, 2))[:, None], rtol=1e-12, atol=1e-14)


M = 7  # queries
BIASES = {
    "none": None,
    "full": (B, HEADS, M, N),
    "samples": (HEADS, M, N),
    "heads": (B, 1, M, N),
    "queries": (HEADS, 1, N),
    "keys": (M, 1),
    "tokens": (M, N),
    "one row": (N,),
    "number": (),
}


def close(found, expected):
    """Equal to 1e-13 of the largest entry, or of 1: what is added to all scores of a query has a gradient of zero."""
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-13 * max(np.abs(expected).max(), 1))


@pytest.mark.parametrize("kind", [*BIASES, "forbidden"])
@pytest.mark.parametrize("chunks", [2, 3, M])
def test_chunks_of_queries_are_all_of_them_at_once(rng, kind, chunks):
    q, k, v = rng.standard_normal((B, HEADS, M, d)), *rng.standard_normal((2, B, HEADS, N, d))
    bias = np.where(np.tri(M, N), 0.0, -np.inf) if kind == "forbidden" else None
    if BIASES.get(kind) is not None:
        bias = np.array(rng.standard_normal(BIASES[kind]))
    do = rng.standard_normal(q.shape)
    row = B * HEADS * N
    at_once = {2: 4 * row, 3: 4 * row - 1, M: 0}[chunks]  # 4 + 3 queries; 3 + 3 + 1; one by one, in any case
    o, cache = dot_product_attention.forward(q, k, v, bias, at_once=at_once)
    whole, whole_cache = dot_product_attention.forward(q, k, v, bias, at_once=M * row)
    assert len(cache[-1]) == chunks and len(whole_cache[-1]) == 1
    close(o, whole)
    close(dot_product_attention.weights(cache), dot_product_attention.weights(whole_cache))
    for found, expected in zip(
        dot_product_attention.backward(do, cache), dot_product_attention.backward(do, whole_cache), strict=True
    ):
        if expected is None:
            assert found is None
        else:
            close(found, expected)


@pytest.mark.parametrize("at_once", [0, 3 * B * HEADS * N, 1000])
def test_the_values_gradient_is_the_adjoint_also_with_dropout(rng, at_once):
    """o is linear in v: <o, do> = <v, dv>, if backward uses each chunk's own mask."""
    q, k, v = rng.standard_normal((B, HEADS, M, d)), *rng.standard_normal((2, B, HEADS, N, d))
    o, cache = dot_product_attention.forward(q, k, v, None, 0.4, np.random.default_rng(1), at_once)
    do = rng.standard_normal(o.shape)
    _, _, dv, _ = dot_product_attention.backward(do, cache)
    assert np.vdot(v, dv) == pytest.approx(np.vdot(o, do), rel=1e-12)
    np.testing.assert_allclose(dot_product_attention.weights(cache).sum(axis=-1), 1, rtol=1e-14)


def test_heads_that_do_not_divide_the_width(rng):
    with pytest.raises(ValueError, match="4 heads do not divide the width 6"):
        attention.forward(random_params(rng), np.zeros((B, N, D)), 4)
