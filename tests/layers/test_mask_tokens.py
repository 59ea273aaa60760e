"""Mask tokens: every visible patch returns to its place, and the gaps share one token and its gradient."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from numpy_vit.checks import gradcheck
from numpy_vit.layers import mask_tokens, random_masking


def test_by_hand():
    params = {"mask_token": np.array([[[-1.0]]]), "other": None}
    x = np.array([[[9.0], [1.0], [2.0]], [[8.0], [3.0], [4.0]]])  # a prefix token and two visible patches
    y, cache = mask_tokens.forward(params, x, np.array([[2, 0, 3, 1], [0, 2, 1, 3]]), first=1)
    assert y[..., 0].tolist() == [[9, -1, 1, -1, 2], [8, 3, -1, 4, -1]]
    dx, grads = mask_tokens.backward(np.arange(10.0).reshape(2, 5, 1), cache)
    assert dx[..., 0].tolist() == [[0, 2, 4], [5, 6, 8]]
    assert grads["mask_token"].tolist() == [[[1 + 3 + 7 + 9]]]
    assert grads.keys() == {"mask_token"}


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1), batch=st.integers(1, 3), patches=st.integers(1, 7), first=st.integers(0, 2),
    data=st.data(),
)  # fmt: skip
def test_it_undoes_random_masking(seed, batch, patches, first, data):
    rng = np.random.default_rng(seed)
    keep = data.draw(st.integers(0, patches))
    shuffle, restore = random_masking.orders(rng.random((batch, patches)))
    params = mask_tokens.init(3, rng, np.float64)
    x = rng.standard_normal((batch, first + patches, 3))
    visible, _ = random_masking.forward(x, shuffle[:, :keep], first)
    y, cache = mask_tokens.forward(params, visible, restore, first)
    removed = np.concatenate([np.zeros((batch, first), bool), restore >= keep], axis=1)
    np.testing.assert_array_equal(y, np.where(removed[..., None], params["mask_token"], x))
    dy = rng.standard_normal(y.shape)
    dx, grads = mask_tokens.backward(dy, cache)
    np.testing.assert_allclose(grads["mask_token"][0, 0], dy[removed].sum(axis=0), rtol=1e-12, atol=1e-13)
    np.testing.assert_array_equal(dx, random_masking.forward(dy, shuffle[:, :keep], first)[0])
    # It is linear in both: <y, dy> = <x, dx> + <token, dtoken>.
    assert np.vdot(y, dy) == pytest.approx(
        np.vdot(visible, dx) + np.vdot(params["mask_token"], grads["mask_token"]), rel=1e-11, abs=1e-11
    )
    if visible.size:
        gradcheck(
            lambda params, x: mask_tokens.forward(params, x, restore, first), mask_tokens.backward, params, visible
        ).raise_if_failed()


def test_more_visible_patches_than_patches():
    with pytest.raises(ValueError, match="5 visible patches do not fit into 4: 1 of the 6 tokens"):
        mask_tokens.forward({"mask_token": np.zeros((1, 1, 2))}, np.zeros((1, 6, 2)), np.zeros((1, 4), int), 1)
