"""Pictures for a checkpoint: turned as those were that it was trained on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from numpy_vit.checkpoints import own
from numpy_vit.models import vit
from numpy_vit.training.opened import open_model, read_for

CONFIG = vit.Config(image_size=8, patch_size=2, num_classes=2, embed_dim=8, depth=1, num_heads=2)
TRAINED = {"size": [8, 8], "channels": 3, "mean": [0.5] * 3, "std": [0.5] * 3}


def test_our_own_models_see_photographs_upright_and_others_as_they_lie(tmp_path: Path) -> None:
    pixels = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3) * 14
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was held upright: turn it a quarter clockwise
    Image.fromarray(pixels).save(tmp_path / "photo.png", exif=exif)
    params = vit.init(CONFIG, np.random.default_rng(0))
    for name, extra, expected in (
        ("trained", {"preprocessing": TRAINED}, np.rot90(pixels, -1)),
        ("other", {}, pixels),
    ):
        own.save(tmp_path / name, CONFIG, params, extra)
        opened = open_model(tmp_path / name)
        np.testing.assert_array_equal(np.asarray(read_for(opened, tmp_path / "photo.png")), expected)
        grey = np.asarray(Image.fromarray(np.ascontiguousarray(expected)).convert("L"))
        np.testing.assert_array_equal(np.asarray(read_for(opened, tmp_path / "photo.png", 1)), grey)
