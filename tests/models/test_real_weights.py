"""A real ViT-Ti/16, trained by others: its file is our tree, and its logits are timm's.

The folder named by NUMPY_VIT_REAL holds vit_tiny_patch16_224/model.safetensors and reference_logits.npz, which timm
1.0.31 made for np.random.default_rng(0).standard_normal((2, 3, 224, 224)).
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from numpy_vit import tree
from numpy_vit.checkpoints import safetensors
from numpy_vit.models import vit, vit_config

FOLDER = Path(os.environ.get("NUMPY_VIT_REAL", "")) / "vit_tiny_patch16_224"

pytestmark = pytest.mark.skipif(
    not os.environ.get("NUMPY_VIT_REAL") or not FOLDER.is_dir(),
    reason="NUMPY_VIT_REAL does not name a folder with vit_tiny_patch16_224",
)


def test_logits_are_timms() -> None:
    tensors, _ = safetensors.read(FOLDER / "model.safetensors")
    config, params = vit_config("vit_tiny_patch16_224"), tree.unflatten(tensors)
    expected_shapes = tree.map(np.shape, vit.init(config, np.random.default_rng(0)))
    assert tree.flatten(tree.map(np.shape, params)) == tree.flatten(expected_shapes)
    with np.load(FOLDER / "reference_logits.npz") as stored:
        (reference,) = stored.values()
    assert np.abs(reference).max() > 1  # a zero head would agree with anything
    images = np.random.default_rng(0).standard_normal((2, 3, 224, 224)).astype(np.float32)
    np.testing.assert_allclose(vit.predict(params, images, config), reference, rtol=0, atol=1e-4)
    wide = tree.map(lambda leaf: leaf.astype(np.float64), params)
    np.testing.assert_allclose(vit.predict(wide, images.astype(np.float64), config), reference, rtol=0, atol=2e-5)
