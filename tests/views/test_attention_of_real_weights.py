"""Where a real ViT-Ti/16 looks on a cat's photograph: the share on the face, inside a polygon drawn by hand."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw

from numpy_vit.data.image_files import read_image
from numpy_vit.training.opened import open_model, preprocessing_of
from numpy_vit.views import attention_maps, saliency

REAL = Path(os.environ.get("NUMPY_VIT_REAL", "nowhere"))
VIT_TINY = REAL / "vit_tiny_patch16_224" / "model.safetensors"
pytestmark = pytest.mark.skipif(not VIT_TINY.is_file(), reason="NUMPY_VIT_REAL does not name a folder with ViT-Ti/16")

# (x, y) on chelsea.png, 451x300 pixels: around both eyes, the nose and the mouth
FACE = [
    (125, 85), (200, 75), (260, 70), (345, 100), (350, 150), (315, 210), (305, 250), (270, 280), (220, 275), (170, 240),
    (185, 200), (140, 155),
]  # fmt: skip
EGYPTIAN_CAT = 285


@pytest.fixture(scope="module")
def seen():
    opened = open_model(VIT_TINY)
    transform, _ = preprocessing_of(opened)
    photo = read_image(REAL / "photos" / "chelsea.png")
    mask = Image.new("L", photo.size)
    ImageDraw.Draw(mask).polygon(FACE, fill=255)
    coverage = attention_maps.coverage(np.asarray(transform.crop(mask))[np.newaxis] / 255, opened.config)
    images = transform.apply(photo)
    return opened, images, attention_maps.weights(opened.model, opened.params, images, opened.config), coverage


def test_the_middle_blocks_look_at_the_face_and_the_last_at_the_corners(seen):
    """The late blocks keep a third to two thirds of their weight on the four corners, which hold nothing of the cat.

    Darcet et al. 2024, "Vision transformers need registers", found the same in larger models: patches without content
    serve as registers.  So the late attention is no map of the object; what of it speaks for the class is.
    """
    opened, images, weights, coverage = seen
    maps = attention_maps.maps(weights, opened.config)
    share = attention_maps.share_on(maps, coverage)[0].mean(axis=1)  # (L,)
    corners = maps[0][:, :, [0, 0, -1, -1], [0, -1, 0, -1]].sum(axis=-1).mean(axis=1)
    area = coverage.mean()
    assert area == pytest.approx(0.450, abs=0.001)
    assert (share[3:7] > area).all()
    assert share[8:].mean() == pytest.approx(0.239, abs=0.005)
    assert (corners[8:] > 0.25).all()
    assert (corners[:7] < 0.1).all()
    relevance = saliency.weighted_rollout(opened.model, opened.params, images[0], opened.config, EGYPTIAN_CAT)
    assert attention_maps.share_on(relevance[np.newaxis], coverage)[0] == pytest.approx(0.478, abs=0.005)


@pytest.mark.slow
def test_contributions_add_up_on_real_weights(seen):
    opened, images, _, _ = seen
    few, more = (
        saliency.integrated_gradients(opened.model, opened.params, images[0], opened.config, EGYPTIAN_CAT, steps)
        for steps in (16, 64)
    )
    assert abs(more.residual) < 0.02 * (more.logit - more.baseline_logit)
    assert abs(more.residual) < abs(few.residual)
