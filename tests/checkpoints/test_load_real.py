"""A real ViT-Ti/16 through load() and through every layout that we write: the same logits each time."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from numpy_vit.checkpoints.convert import TARGETS, save_as
from numpy_vit.checkpoints.load import load

FOLDER = Path(os.environ.get("NUMPY_VIT_REAL", "")) / "vit_tiny_patch16_224"

pytestmark = pytest.mark.skipif(
    not os.environ.get("NUMPY_VIT_REAL") or not FOLDER.is_dir(),
    reason="NUMPY_VIT_REAL does not name a folder with vit_tiny_patch16_224",
)


def demand_the_logits(found):
    with np.load(FOLDER / "reference_logits.npz") as stored:
        (reference,) = stored.values()
    images = np.random.default_rng(0).standard_normal((2, 3, 224, 224)).astype(np.float32)
    logits = found.model.predict(found.params, images, found.config)
    np.testing.assert_allclose(logits, reference, rtol=0, atol=1e-4)


def test_logits_are_timm_s():
    found = load(FOLDER)
    assert (found.config.num_heads, found.config.depth) == (3, 12)
    assert not found.report.unexpected
    demand_the_logits(found)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
def test_through_other_layouts_and_back(tmp_path, target, suffix):
    found = load(FOLDER)
    save_as(tmp_path / f"there{suffix}", found.config, found.params, target)
    # a .pt has no place for eps: Hugging Face's own would be 1e-12
    there = load(tmp_path / f"there{suffix}", **({} if suffix == ".safetensors" else {"norm_eps": 1e-6}))
    assert there.report.layout == {"timm": "timm", "hf": "hf-vit", "torchvision": "torchvision"}[target]
    save_as(tmp_path / f"back{suffix}", there.config, there.params, "timm")
    demand_the_logits(load(tmp_path / f"back{suffix}"))


@pytest.mark.framework
def test_a_file_of_torch_save(tmp_path):
    torch = pytest.importorskip("torch")
    state = pytest.importorskip("safetensors.torch").load_file(FOLDER / "model.safetensors")
    torch.save({"model": state, "epoch": 3}, tmp_path / "checkpoint.pth")
    found = load(tmp_path / "checkpoint.pth")
    assert found.report.unwrapped == ("model/",)
    demand_the_logits(found)
