"""The patch projection is a convolution whose stride is its kernel: against loops over every pixel."""

from __future__ import annotations

import math

import numpy as np
import pytest

from numpy_vit.layers import patch_embed


@pytest.fixture
def made():
    rng = np.random.default_rng(0)
    params = {"proj": {"weight": rng.standard_normal((4, 3, 2, 3)), "bias": rng.standard_normal(4)}}
    return params, rng.standard_normal((2, 3, 4, 9)), rng.standard_normal((2, 6, 4))


def test_forward_and_backward_against_a_strided_convolution(made):
    params, images, dtokens = made
    weight, bias = params["proj"]["weight"], params["proj"]["bias"]
    tokens, dimages, dweight, dbias = np.zeros((2, 6, 4)), np.zeros_like(images), np.zeros_like(weight), np.zeros(4)
    for b, d in np.ndindex(2, 4):
        for row, column in np.ndindex(2, 3):
            n = row * 3 + column
            tokens[b, n, d] = bias[d]
            dbias[d] += dtokens[b, n, d]
            for c, dy, dx in np.ndindex(3, 2, 3):
                pixel = b, c, 2 * row + dy, 3 * column + dx
                tokens[b, n, d] += weight[d, c, dy, dx] * images[pixel]
                dimages[pixel] += dtokens[b, n, d] * weight[d, c, dy, dx]
                dweight[d, c, dy, dx] += dtokens[b, n, d] * images[pixel]
    found, cache = patch_embed.forward(params, images)
    np.testing.assert_allclose(found, tokens, rtol=1e-12, atol=1e-13)
    found, grads = patch_embed.backward(dtokens, cache)
    np.testing.assert_allclose(found, dimages, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(grads["proj"]["weight"], dweight, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(grads["proj"]["bias"], dbias, rtol=1e-12, atol=1e-13)


def test_the_norm_comes_after_the_projection(made):
    params, images, _ = made
    plain, _ = patch_embed.forward(params, images)
    norm = {"weight": np.full(4, 2.0), "bias": np.full(4, 3.0)}
    normed, _ = patch_embed.forward({**params, "norm": norm}, images, eps=0.5)
    for b, n in np.ndindex(2, 6):
        row = plain[b, n].tolist()
        mean = math.fsum(row) / 4
        sigma = math.sqrt(math.fsum((value - mean) ** 2 for value in row) / 4 + 0.5)
        np.testing.assert_allclose(normed[b, n], [2 * (value - mean) / sigma + 3 for value in row], rtol=1e-12)


def test_no_input_gradient_where_nobody_reads_it(made):
    params, images, dtokens = made
    _, cache = patch_embed.forward(params, images)
    _, grads = patch_embed.backward(dtokens, cache)
    dimages, alone = patch_embed.backward(dtokens, cache, input_grad=False)
    assert dimages is None
    for key, gradient in grads["proj"].items():
        np.testing.assert_array_equal(alone["proj"][key], gradient)


@pytest.mark.parametrize("shape", [(2, 1, 4, 9), (3, 4, 9)])
def test_images_that_do_not_fit_the_weight(made, shape):
    with pytest.raises(ValueError, match=r"\(B, 3, Y, X\).*\(4, 3, 2, 3\)"):
        patch_embed.forward(made[0], np.zeros(shape))
