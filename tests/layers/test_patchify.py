"""The order of patches and of the pixels in them, by the identity of single pixels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from numpy_vit.layers import patchify


def test_a_grey_image_by_hand():
    image = np.arange(1.0, 17.0).reshape(1, 1, 4, 4)
    patches, _ = patchify.forward(image, (2, 2))
    assert patches[0].tolist() == [[1, 2, 5, 6], [3, 4, 7, 8], [9, 10, 13, 14], [11, 12, 15, 16]]


def test_a_patch_that_is_not_square_by_hand():
    image = np.arange(1.0, 17.0).reshape(1, 1, 4, 4)
    assert patchify.forward(image, (1, 4))[0][0].tolist() == image[0, 0].tolist()
    assert patchify.forward(image, (4, 2))[0][0, 1].tolist() == [3, 4, 7, 8, 11, 12, 15, 16]


def test_every_pixel_of_a_colour_image_that_is_not_square():
    B, C, Y, X, py, px = 2, 3, 6, 8, 3, 2
    b, c, y, x = np.indices((B, C, Y, X))
    images = 1000 * b + 100 * c + 10 * y + x  # a pixel says where it comes from
    patches, _ = patchify.forward(images, (py, px))
    for sample in range(B):
        for row in range(Y // py):
            for column in range(X // px):
                for channel in range(C):
                    for dy in range(py):
                        for dx in range(px):
                            found = patches[sample, row * (X // px) + column, (channel * py + dy) * px + dx]
                            assert found == 1000 * sample + 100 * channel + 10 * (row * py + dy) + column * px + dx


@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(1, 4), st.integers(1, 4))
def test_unpatchify_is_inverse_and_backward_is_adjoint(batch, channels, rows, columns, py, px):
    rng = np.random.default_rng(0)
    images = rng.standard_normal((batch, channels, rows * py, columns * px))
    patches, cache = patchify.forward(images, (py, px))
    back = patchify.unpatchify(patches, images.shape[1:], (py, px))
    assert back.shape == images.shape
    assert back.tobytes() == images.tobytes()
    other = rng.standard_normal(patches.shape)
    np.testing.assert_allclose(np.vdot(patches, other), np.vdot(images, patchify.backward(other, cache)), rtol=1e-11)


@pytest.mark.parametrize(("image", "patch", "remedy"), [((5, 8), (2, 4), "6x8"), ((8, 9), (4, 4), "8x12")])
def test_a_patch_that_does_not_divide_the_image(image, patch, remedy):
    with pytest.raises(ValueError, match=f"{image[0]}x{image[1]} .*{patch[0]}x{patch[1]} patches.*{remedy}"):
        patchify.forward(np.zeros((1, 3, *image)), patch)
