"""Random masking: sorted noise says which patches stay, and the scatter is the gather's adjoint."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from numpy_vit.checks import gradcheck
from numpy_vit.layers import random_masking


def test_by_hand():
    noise = np.array([[0.3, 0.1, 0.9, 0.2], [0.0, 0.5, 0.4, 0.6]])
    shuffle, restore = random_masking.orders(noise)
    assert shuffle.tolist() == [[1, 3, 0, 2], [0, 2, 1, 3]]
    assert restore.tolist() == [[2, 0, 3, 1], [0, 2, 1, 3]]
    x = np.arange(10.0).reshape(2, 5, 1)  # a prefix token and four patches
    y, cache = random_masking.forward(x, shuffle[:, :2], first=1)
    assert y[..., 0].tolist() == [[0, 2, 4], [5, 6, 8]]
    dx = random_masking.backward(np.array([[[1.0], [2.0], [3.0]], [[4.0], [5.0], [6.0]]]), cache)
    assert dx[..., 0].tolist() == [[1, 0, 2, 0, 3], [4, 5, 0, 6, 0]]


def test_equal_noise_keeps_the_order():
    shuffle, restore = random_masking.orders(np.zeros((2, 100)))
    assert (shuffle == np.arange(100)).all()
    assert (restore == np.arange(100)).all()


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1), batch=st.integers(1, 3), patches=st.integers(1, 9), first=st.integers(0, 2),
    data=st.data(),
)  # fmt: skip
def test_the_scatter_is_the_gather_s_adjoint(seed, batch, patches, first, data):
    rng = np.random.default_rng(seed)
    keep = data.draw(st.integers(0, patches))
    shuffle, restore = random_masking.orders(rng.integers(0, 5, (batch, patches)) / 4)  # with ties
    for b in range(batch):
        assert shuffle[b][restore[b]].tolist() == restore[b][shuffle[b]].tolist() == list(range(patches))
    visible = shuffle[:, :keep]
    x = rng.standard_normal((batch, first + patches, 3))
    y, cache = random_masking.forward(x, visible, first)
    dy = rng.standard_normal(y.shape)
    dx = random_masking.backward(dy, cache)
    assert np.vdot(y, dy) == pytest.approx(np.vdot(x, dx), rel=1e-12, abs=1e-12)
    np.testing.assert_array_equal(random_masking.forward(dx, visible, first)[0], dy)  # S Sᵀ = 1
    removed = restore >= keep
    assert removed.sum() == batch * (patches - keep)
    assert (dx[:, first:][removed] == 0).all()
    if y.size:
        gradcheck(
            lambda x: random_masking.forward(x, visible, first), random_masking.backward, None, x
        ).raise_if_failed()


def test_noise_of_another_shape():
    with pytest.raises(ValueError, match=r"noise \(4,\) has to be \(B, N\)"):
        random_masking.orders(np.zeros(4))
