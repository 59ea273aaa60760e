"""A byte a number: what comes back is what went in, to within half a step of the square root."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from numpy_vit.views.report import packed

KINDS = [(packed.weights, 255, False), (packed.signed, 127, True)]


def maps(rng: np.random.Generator, signed: bool) -> np.ndarray:
    """Rows like attention's, of many sizes: a few large numbers and many tiny ones."""
    made = rng.lognormal(-4, 3, (2, 3, 7, 7)) * (rng.choice([-1, 1], (2, 3, 7, 7)) if signed else 1)
    return made.astype(np.float32)


@pytest.mark.parametrize(("pack", "steps", "signed"), KINDS)
@given(seed=st.integers(0, 10**6), T=st.integers(0, 3))
@settings(max_examples=30, deadline=None)
def test_values_are_those_within_half_a_step(pack, steps, signed, seed, T):
    before = maps(np.random.default_rng(seed), signed)
    made = pack(before, T)
    np.testing.assert_array_equal(made.values[..., :T], before[..., :T])
    patches, scale = before[..., T:].astype(np.float64), made.scales[..., np.newaxis].astype(np.float64)
    half = 0.5 / steps
    allowed = 2 * np.sqrt(np.abs(patches) * scale) * half + scale * half**2
    assert (np.abs(made.values[..., T:] - patches) <= allowed * (1 + 1e-4)).all()


@pytest.mark.parametrize(("pack", "steps", "signed"), KINDS)
def test_the_largest_patch_is_exact_whatever_the_prefix_tokens_are(pack, steps, signed):
    before = maps(np.random.default_rng(0), signed)
    before[..., 0] = 1e6
    made = pack(before, 1)
    largest = np.abs(before[..., 1:]).argmax(axis=-1)[..., np.newaxis]
    there = np.take_along_axis(before[..., 1:], largest, axis=-1)
    np.testing.assert_array_equal(np.take_along_axis(made.values[..., 1:], largest, axis=-1), there)


@pytest.mark.parametrize(("pack", "steps", "signed"), KINDS)
def test_a_row_of_zeros_stays_one(pack, steps, signed):
    assert not pack(np.zeros((2, 5), np.float32), 1).values.any()


@pytest.mark.parametrize(("pack", "steps", "signed"), KINDS)
def test_what_is_written_reads_back(pack, steps, signed, unpacked):
    before = maps(np.random.default_rng(2), signed)
    made = pack(before, 2)
    after = unpacked(packed.written(made), 2 * 3 * 7, 2, 5, signed).reshape(before.shape)
    np.testing.assert_allclose(after, made.values, rtol=1e-5, atol=1e-12)
    assert packed.written(made) == packed.written(pack(before, 2))
