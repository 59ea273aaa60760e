"""What weights are before training: their spread and where it ends."""

from __future__ import annotations

import math

import numpy as np
import pytest

from numpy_vit.layers import attention_pool, initial, linear, patch_embed, position_table, prefix_tokens


def spread(values, std):
    """How many standard errors the mean and the deviation of a normal sample are off."""
    size = values.size
    return abs(values.mean()) / (std / math.sqrt(size)), abs(values.std() - std) / (std / math.sqrt(2 * size))


@pytest.mark.parametrize("std", [1e-6, 0.02, 0.3])
def test_normal_has_its_deviation(std):
    values = initial.normal((400, 500), np.random.default_rng(0), std, np.float64)
    assert max(spread(values, std)) < 5
    inside = (np.abs(values) < std).mean()
    assert inside == pytest.approx(math.erf(1 / math.sqrt(2)), abs=5e-3)  # normal, not uniform


def test_truncation_at_two():
    values = initial.normal((300, 500), np.random.default_rng(0), 2.0, np.float64)
    assert 1.99 < np.abs(values).max() <= 2
    # The deviation of a normal one truncated at a = 1 of its deviations: σ² (1 - 2a φ(a)/(2Φ(a) - 1))
    density = math.exp(-0.5) / math.sqrt(2 * math.pi)
    assert values.var() == pytest.approx(4 * (1 - 2 * density / math.erf(1 / math.sqrt(2))), rel=1e-2)
    # nothing piles up at the bounds: values beyond are drawn again, not clipped
    assert (np.abs(values) > 1.98).mean() < 0.02


def test_truncated_is_cut_off_at_two_of_its_deviations():
    values = initial.truncated((300, 500), np.random.default_rng(0), 0.1, np.float64)
    assert 0.199 < np.abs(values).max() <= 0.2
    density = math.exp(-2) / math.sqrt(2 * math.pi)
    assert values.var() == pytest.approx(0.01 * (1 - 4 * density / math.erf(math.sqrt(2))), rel=2e-2)


def test_uniform_fan_in_is_a_convolutions():
    values = initial.uniform_fan_in((64, 3, 8, 16), np.random.default_rng(0), np.float64)
    bound = 1 / math.sqrt(3 * 8 * 16)
    assert 0.999 * bound < np.abs(values).max() <= bound
    assert values.std() == pytest.approx(bound / math.sqrt(3), rel=2e-2)


def test_both_dtypes_start_from_the_same_numbers():
    for draw in (initial.normal, initial.uniform_fan_in):
        narrow, wide = (draw((7, 5), np.random.default_rng(3), dtype=dtype) for dtype in (np.float32, np.float64))
        assert (narrow.dtype, wide.dtype) == (np.float32, np.float64)
        np.testing.assert_array_equal(narrow, wide.astype(np.float32))


def test_each_layers_deviation():
    rng = np.random.default_rng(4)
    made = linear.init(300, 400, rng)
    assert max(spread(made["weight"].astype(np.float64), 0.02)) < 5
    assert (made["bias"] == 0).all()
    assert max(spread(position_table.init(200, 300, rng)["pos_embed"].astype(np.float64), 0.02)) < 5
    tokens = prefix_tokens.init(5000, True, 4, rng)
    assert max(spread(tokens["cls_token"].astype(np.float64), 1e-6)) < 5
    assert max(spread(tokens["reg_token"].astype(np.float64), 1e-6)) < 5
    latent = attention_pool.init(400, 1, rng)["latent"]
    assert np.abs(latent).max() <= 2 / 20 * (1 + 1e-6)  # cut off at two deviations of 1/√D
    projection = patch_embed.init(3, 32, (4, 8), rng)["proj"]
    assert 0.99 / math.sqrt(96) < np.abs(projection["weight"]).max() <= 1 / math.sqrt(96) + 1e-8
    assert (projection["bias"] == 0).all()
