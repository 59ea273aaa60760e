"""Principal components of patch filters: recovered from filters made of known ones."""

from __future__ import annotations

import numpy as np
import pytest

from numpy_vit.views import patch_filters


def test_known_components_are_found_in_their_order():
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.standard_normal((12, 12)))[0][:2]  # two orthonormal patches of 3 x 2 x 2
    strengths = rng.standard_normal((50, 2)) * (5, 1)
    weight = (strengths @ basis + rng.standard_normal(12)).reshape(50, 3, 2, 2)  # and a common offset
    found, shares = patch_filters.components(weight, 3)
    centred = (strengths - strengths.mean(axis=0)) @ basis
    covariance = centred.T @ centred
    values, vectors = np.linalg.eigh(covariance)  # ascending
    for i in range(2):
        expected = vectors[:, -1 - i]
        expected = expected * np.sign(expected[np.abs(expected).argmax()])
        np.testing.assert_allclose(found[i].ravel(), expected, atol=1e-10)
        assert shares[i] == pytest.approx(values[-1 - i] / values.sum())
    assert shares[2] == pytest.approx(0, abs=1e-20)


def test_fewer_components_than_asked_for():
    found, shares = patch_filters.components(np.random.default_rng(0).standard_normal((5, 1, 1, 3)), 28)
    assert found.shape == (3, 1, 1, 3)
    assert shares.sum() == pytest.approx(1)


@pytest.mark.parametrize(("channels", "expected"), [(1, [255, 255, 255]), (3, [255, 128, 64]), (5, [255, 128, 64])])
def test_colours(channels, expected):
    component = np.zeros((channels, 1, 2))
    component[0, 0, 0] = 2.0
    if channels > 1:
        component[2, 0, 0] = -1.0
    found = patch_filters.colours(component)
    np.testing.assert_array_equal(found[0, 0], expected)
    np.testing.assert_array_equal(found[0, 1], [128, 128, 128])  # 0 is grey


def test_the_picture_shows_the_components_row_by_row():
    components = np.zeros((9, 3, 4, 4))
    for i in range(9):
        components[i, :, i // 4, i % 4] = -1  # black in one pixel of its own, and grey elsewhere
    picture = np.asarray(patch_filters.picture(components, np.full(9, 0.1), "a title"))
    black, side = (picture == 0).all(axis=-1), 72 // 4
    assert black.sum() == 9 * side**2
    rows, columns = (np.flatnonzero(black.any(axis=axis)) for axis in (1, 0))  # the first tile's corner is black
    for i in range(9):
        y, x = rows[0] + i // 7 * (72 + 6), columns[0] + i % 7 * (72 + 6)
        tile = black[y : y + 72, x : x + 72].reshape(4, side, 4, side).all(axis=(1, 3))
        assert np.argwhere(tile).tolist() == [[i // 4, i % 4]]
