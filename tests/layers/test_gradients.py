"""Every layer's backward against finite differences of its forward: shapes, values, seeds and memory layouts drawn.

Everything is checked at gradcheck's own tolerance, a relative error of 1e-9.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from numpy_vit import tree
from numpy_vit.checks import catalogue, gradcheck
from numpy_vit.checks.examples import MODELS
from numpy_vit.layers import (
    attention,
    attention_pool,
    block,
    cross_entropy,
    dot_product_attention,
    drop_path,
    dropout,
    gelu,
    gelu_tanh,
    layernorm,
    linear,
    mean_pool,
    mlp,
    mse,
    patch_embed,
    patchify,
    position_table,
    post_norm_block,
    prefix_tokens,
    quick_gelu,
    silu,
    softmax,
    swiglu,
    token_pool,
)

LAYERS = [name for name in catalogue.names() if name not in MODELS]
SLOW = {
    "attention", "readout_attention", "attention_pool", "block", "post_norm_block", "readout_block", "encoder",
}  # fmt: skip  # many parameters

SEEDS = st.integers(0, 2**32 - 1)
BATCHES = st.integers(2, 3)  # a missing sum over the batch shows only where it is larger than 1
SIDES = st.integers(1, 4)
SCALES = st.sampled_from([0.1, 1.0, 3.0])
LAYOUTS = st.sampled_from(["contiguous", "strided", "transposed", "reversed"])
ACTIVATIONS = st.sampled_from([gelu, gelu_tanh, quick_gelu, silu])

few = settings(max_examples=20, deadline=None)
many = settings(max_examples=30, deadline=None)


def as_layout(node, layout):
    """Return a tree of equal arrays that lie differently in memory and cannot be written to."""

    def laid_out(array):
        if np.asarray(array).dtype.kind != "f" or np.ndim(array) == 0:
            return array
        if layout == "strided":
            wide = np.full((*array.shape[:-1], 2 * array.shape[-1]), np.nan)  # who reads between the entries finds NaN
            wide[..., ::2] = array
            array = wide[..., ::2]
        elif layout == "transposed":
            array = np.array(array, order="F")
        elif layout == "reversed":
            array = np.array(array[..., ::-1], order="C")[..., ::-1]
        else:
            array = np.array(array, order="C")
        array.flags.writeable = False
        return array

    return tree.map(laid_out, node)


def check(forward, backward, params, x, layout, seed, directions=2):
    """Check every entry, or some directions, with inputs and upstream gradients in the given layout."""

    def laid_out_forward(*args):
        return forward(*(as_layout(arg, layout) for arg in args))

    def laid_out_backward(dy, cache):
        return backward(as_layout(dy, layout), cache)

    report = gradcheck(
        laid_out_forward, laid_out_backward, params, x, directions=directions, rng=np.random.default_rng(seed)
    )
    report.raise_if_failed()


def randomised(params, rng):
    """Move every parameter from its start: gamma = 1 and beta = 0 would hide half of the faults."""
    return tree.map(lambda leaf: leaf + rng.standard_normal(leaf.shape), params)


@pytest.mark.parametrize("name", LAYERS)
def test_the_catalogue_at_any_seed(name):
    @settings(max_examples=3 if name in SLOW else 12, deadline=None)
    @given(seed=SEEDS, layout=LAYOUTS)
    def along_directions(seed, layout):
        for case in catalogue.cases(name, seed):
            check(case.forward, case.backward, case.params, case.x, layout, seed)

    @settings(max_examples=1 if name in SLOW else 8, deadline=None)
    @given(seed=SEEDS)
    def entry_by_entry(seed):
        for case in catalogue.cases(name, seed):
            gradcheck(case.forward, case.backward, case.params, case.x).raise_if_failed()

    along_directions()
    entry_by_entry()


@many
@given(SEEDS, LAYOUTS, SCALES, st.lists(st.integers(1, 3), max_size=2), SIDES, SIDES, BATCHES, st.booleans())
def test_linear(seed, layout, scale, middle, inside, outside, batch, bias):
    rng = np.random.default_rng(seed)
    params = randomised(linear.init(inside, outside, rng, bias, np.float64), rng)
    x = scale * rng.standard_normal((batch, *middle, inside))
    check(linear.forward, linear.backward, params, x, layout, seed, None)
    check(linear.forward, linear.backward, params, x, layout, seed)


@many
@given(SEEDS, LAYOUTS, SCALES, BATCHES, st.integers(1, 3), st.integers(2, 8), st.sampled_from([1e-6, 1e-2, 1.0]))
def test_layernorm(seed, layout, scale, batch, tokens, dim, eps):
    rng = np.random.default_rng(seed)
    params = randomised(layernorm.init(dim, np.float64), rng)
    x = scale * rng.standard_normal((batch, tokens, dim)) + rng.standard_normal()
    forward = partial(layernorm.forward, eps=eps)
    check(forward, layernorm.backward, params, x, layout, seed, None)
    check(forward, layernorm.backward, params, x, layout, seed)


@many
@given(SEEDS, LAYOUTS, SCALES, st.lists(SIDES, min_size=1, max_size=4))
def test_softmax(seed, layout, scale, shape):
    x = scale * np.random.default_rng(seed).standard_normal(shape)
    check(softmax.forward, softmax.backward, None, x, layout, seed, None)


@many
@given(SEEDS, LAYOUTS, SCALES, st.lists(SIDES, min_size=1, max_size=3), ACTIVATIONS)
def test_activations(seed, layout, scale, shape, act):
    x = scale * np.random.default_rng(seed).standard_normal(shape)
    check(act.forward, act.backward, None, x, layout, seed, None)


@many
@given(SEEDS, LAYOUTS, BATCHES, SIDES, SIDES, SIDES, st.integers(1, 3), st.integers(1, 3))
def test_patchify(seed, layout, batch, channels, rows, columns, py, px):
    images = np.random.default_rng(seed).standard_normal((batch, channels, rows * py, columns * px))
    check(partial(patchify.forward, patch=(py, px)), patchify.backward, None, images, layout, seed)


@many
@given(SEEDS, LAYOUTS, BATCHES, SIDES, st.integers(2, 4), st.integers(1, 3), st.integers(1, 3), st.booleans())
def test_patch_embed(seed, layout, batch, channels, dim, py, px, norm):
    rng = np.random.default_rng(seed)
    params = randomised(patch_embed.init(channels, dim, (py, px), rng, not norm, norm, np.float64), rng)
    images = rng.standard_normal((batch, channels, 2 * py, 3 * px))
    check(patch_embed.forward, patch_embed.backward, params, images, layout, seed)


@many
@given(SEEDS, LAYOUTS, BATCHES, SIDES, SIDES, st.booleans(), st.integers(0, 3), st.booleans())
def test_prefix_tokens_and_positions(seed, layout, batch, tokens, dim, class_token, registers, everywhere):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((batch, tokens, dim))
    params = randomised(prefix_tokens.init(dim, class_token, registers, rng, np.float64), rng)
    check(prefix_tokens.forward, prefix_tokens.backward, params, x, layout, seed)
    table = randomised(position_table.init(tokens if everywhere else 1, dim, rng, np.float64), rng)
    check(position_table.forward, position_table.backward, table, x, layout, seed)


@st.composite
def bias_shapes(draw, full):
    """A shape that broadcasts to `full`: some sides 1, and leading ones left out."""
    shape = [side if draw(st.booleans()) else 1 for side in full]
    return tuple(shape[draw(st.integers(0, 3)) :])


@many
@given(st.data(), SEEDS, LAYOUTS, SCALES, BATCHES, st.integers(1, 3), SIDES, SIDES, SIDES, st.booleans())
def test_dot_product_attention(data, seed, layout, scale, batch, heads, queries, keys, width, drop):
    rng = np.random.default_rng(seed)
    q = scale * rng.standard_normal((batch, heads, queries, width))
    k, v = (scale * rng.standard_normal((batch, heads, keys, width)) for _ in range(2))
    bias = rng.standard_normal(data.draw(bias_shapes((batch, heads, queries, keys))))

    def forward(x):
        return dot_product_attention.forward(*x, drop=0.4 if drop else 0.0, rng=np.random.default_rng(1))

    check(forward, dot_product_attention.backward, None, (q, k, v, bias), layout, seed)
    check(forward, dot_product_attention.backward, None, (q, k, v, bias), layout, seed, None)


@few
@given(st.data(), SEEDS, LAYOUTS, BATCHES, SIDES, st.integers(1, 3), st.integers(2, 3), st.booleans(), st.booleans())
def test_attention(data, seed, layout, batch, tokens, heads, width, qkv_bias, qk_norm):
    rng = np.random.default_rng(seed)
    params = attention.init(heads * width, heads, rng, qkv_bias, qk_norm, np.float64)
    x = rng.standard_normal((batch, tokens, heads * width))
    bias = rng.standard_normal(data.draw(bias_shapes((batch, heads, tokens, tokens))))

    def forward(params, x):
        return attention.forward(params, x[0], heads, x[1])

    def backward(dy, cache):
        dx, dbias, grads = attention.backward(dy, cache)
        return (dx, dbias), grads

    check(forward, backward, randomised(params, rng), (x, bias), layout, seed)


@few
@given(SEEDS, LAYOUTS, BATCHES, SIDES, SIDES, SIDES, ACTIVATIONS, st.sampled_from([mlp, swiglu]), st.booleans())
def test_mlp_and_swiglu(seed, layout, batch, tokens, dim, hidden, act, layer, drop):
    rng = np.random.default_rng(seed)
    params = randomised(layer.init(dim, hidden, rng, np.float64), rng)

    def forward(params, x):
        return layer.forward(params, x, act, 0.3 if drop else 0.0, np.random.default_rng(2))

    x = rng.standard_normal((batch, tokens, dim))
    check(forward, layer.backward, params, x, layout, seed)


@few
@given(
    SEEDS, LAYOUTS, BATCHES, SIDES, st.integers(1, 2), SIDES,
    st.sampled_from([block, post_norm_block]), st.sampled_from([mlp, swiglu]), ACTIVATIONS,
    st.booleans(), st.booleans(),
)  # fmt: skip
def test_blocks(seed, layout, batch, tokens, heads, hidden, layer, ffn, act, extras, drop):
    rng = np.random.default_rng(seed)
    rates = {"attn_drop": 0.2, "proj_drop": 0.2, "drop_path": 0.3} if drop else {}
    config = block.Config(heads, ffn=ffn, act=act, **rates)
    dim = 3 * heads
    params = layer.init(dim, hidden, config, rng, True, extras, 0.5 if extras else None, np.float64)
    x = rng.standard_normal((batch, tokens, dim))

    def forward(params, x):
        return layer.forward(params, x, config, np.random.default_rng(3))

    check(forward, layer.backward, randomised(params, rng), x, layout, seed, 1)


@many
@given(SEEDS, LAYOUTS, BATCHES, st.lists(SIDES, max_size=2), st.sampled_from([0.0, 0.3, 0.8]))
def test_dropping(seed, layout, batch, rest, rate):
    x = np.random.default_rng(seed).standard_normal((batch, *rest))
    for layer in (dropout, drop_path):

        def forward(x, layer=layer):
            return layer.forward(x, rate, np.random.default_rng(4))

        check(forward, layer.backward, None, x, layout, seed, None)


@many
@given(SEEDS, LAYOUTS, BATCHES, SIDES, st.integers(1, 5), st.integers(0, 3))
def test_token_and_mean_pool(seed, layout, batch, tokens, dim, first):
    x = np.random.default_rng(seed).standard_normal((batch, first + tokens, dim))
    check(token_pool.forward, token_pool.backward, None, x, layout, seed, None)
    check(partial(mean_pool.forward, first=first), mean_pool.backward, None, x, layout, seed, None)


@few
@given(SEEDS, LAYOUTS, BATCHES, SIDES, st.integers(0, 2), st.integers(1, 2), SIDES, ACTIVATIONS)
def test_attention_pool(seed, layout, batch, tokens, first, heads, hidden, act):
    rng = np.random.default_rng(seed)
    dim = 3 * heads
    params = randomised(attention_pool.init(dim, hidden, rng, np.float64), rng)
    x = rng.standard_normal((batch, first + tokens, dim))

    def forward(params, x):
        return attention_pool.forward(params, x, block.Config(heads, act=act), first)

    check(forward, attention_pool.backward, params, x, layout, seed)


@many
@given(
    SEEDS, LAYOUTS, SCALES, BATCHES, st.integers(1, 5), st.booleans(), st.booleans(),
    st.sampled_from([0.0, 0.1, 1.0]), st.sampled_from(["mean", "sum", "none"]),
)  # fmt: skip
def test_cross_entropy(seed, layout, scale, batch, classes, soft, weighted, smoothing, reduction):
    rng = np.random.default_rng(seed)
    targets = rng.uniform(0, 2, (batch, classes)) if soft else rng.integers(0, classes, batch)
    weights = rng.uniform(0.1, 2, batch) if weighted else None
    forward = partial(
        cross_entropy.forward,
        targets=targets, label_smoothing=smoothing, weights=weights, reduction=reduction,
    )  # fmt: skip
    logits = scale * rng.standard_normal((batch, classes))
    check(forward, cross_entropy.backward, None, logits, layout, seed, None)
    check(forward, cross_entropy.backward, None, logits, layout, seed)


@many
@given(SEEDS, LAYOUTS, BATCHES, SIDES, SIDES, st.booleans())
def test_mse(seed, layout, batch, tokens, dim, masked):
    rng = np.random.default_rng(seed)
    prediction, target = rng.standard_normal((2, batch, tokens, dim))
    mask = np.maximum(rng.integers(0, 2, (batch, tokens)), [[1]] + [[0]] * (batch - 1)) if masked else None
    check(partial(mse.forward, target=target, mask=mask), mse.backward, None, prediction, layout, seed, None)
