"""Families' preprocessing, and what JSON files beside a checkpoint say about it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from numpy_vit.data import published
from numpy_vit.data.class_names import imagenet_names, names_beside, read_names
from numpy_vit.errors import DataError

SIZE = (224, 224)


def beside(folder: Path, name: str, content: Any, size: tuple[int, int] = SIZE) -> Any:
    (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))
    return published.beside(folder / "model.safetensors", size)


@pytest.mark.parametrize(
    ("name", "size", "resize", "squash", "resample", "mean"),
    [
        ("timm", 224, 248, False, "bicubic", 0.5),
        ("timm", 384, 384, False, "bicubic", 0.5),
        ("deit", 224, 256, False, "bicubic", 0.485),
        ("deit", 384, 438, False, "bicubic", 0.485),
        ("torchvision", 224, 256, False, "bilinear", 0.485),
        ("openai-clip", 336, 336, False, "bicubic", 0.48145466),
        ("google", 224, 224, True, "bilinear", 0.5),
        ("hf-vit", 224, 224, True, "bilinear", 0.5),
        ("hf-deit", 224, 256, True, "bicubic", 0.485),
    ],
)
def test_families(name: str, size: int, resize: int, squash: bool, resample: str, mean: float) -> None:
    found = published.named(name, (size, size))
    assert (found.resize, found.squash, found.resample) == ((resize, resize), squash, resample)
    assert found.mean[0] == mean
    assert found.size == (size, size)


def test_an_unknown_family_is_told_the_known_ones() -> None:
    with pytest.raises(ValueError, match="choose one of timm"):
        published.named("vgg", SIZE)


@pytest.mark.framework
@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("timm", "vit_tiny_patch16_224"),
        ("timm", "vit_base_patch16_384"),
        ("timm-clip", "vit_base_patch32_clip_224.openai"),
        ("timm-siglip", "vit_base_patch16_siglip_224"),
        ("imagenet", "deit_tiny_patch16_224"),
    ],
)
def test_timms_table_and_its_config_json_say_the_same(tmp_path: Path, name: str, model: str) -> None:
    timm = pytest.importorskip("timm")
    cfg = timm.get_pretrained_cfg(model)
    size = cfg.input_size[1:]
    found = beside(tmp_path, "config.json", {"architecture": model, "pretrained_cfg": cfg.to_dict()}, size)
    assert found[0] == published.named(name, size)


@pytest.mark.framework
@pytest.mark.parametrize(
    ("name", "processor"),
    [
        ("hf-vit", "ViTImageProcessor"),
        ("hf-clip", "CLIPImageProcessor"),
        ("hf-siglip", "SiglipImageProcessor"),
    ],
)
def test_transformers_processors_say_the_same(tmp_path: Path, name: str, processor: str) -> None:
    transformers = pytest.importorskip("transformers")
    getattr(transformers, processor)().save_pretrained(tmp_path)
    found = published.beside(tmp_path / "model.safetensors", SIZE)
    assert found is not None
    assert found[0] == published.named(name, SIZE)


@pytest.mark.framework
@pytest.mark.parametrize("name", ["ViT", "DeiT", "CLIP", "Siglip", "Bit"])
def test_the_input_is_transformers(tmp_path: Path, name: str) -> None:
    """Those that resize with Pillow; the others round twice and differ by a step of 255 here and there."""
    transformers = pytest.importorskip("transformers")
    usual = getattr(transformers, f"{name}ImageProcessor")
    processor = getattr(transformers, f"{name}ImageProcessorPil", usual)()
    processor.save_pretrained(tmp_path)
    found = published.beside(tmp_path / "model.safetensors", SIZE)
    assert found is not None
    for height, width in ((300, 451), (427, 640), (97, 131), (640, 427)):
        picture = Image.fromarray(np.random.default_rng(height).integers(0, 256, (height, width, 3), np.uint8))
        theirs = np.asarray(processor(picture, return_tensors="np")["pixel_values"])[0]
        np.testing.assert_allclose(found[0].apply(picture)[0], theirs, rtol=0, atol=1e-5)


def test_preprocessor_config_goes_over_its_class(tmp_path: Path) -> None:
    stored: dict[str, Any] = {
        "image_processor_type": "BitImageProcessor", "size": {"shortest_edge": 256}, "resample": 3,
        "crop_size": {"height": 224, "width": 224}, "image_mean": [0.485, 0.456, 0.406],
        "image_std": [0.229, 0.224, 0.225],
    }  # fmt: skip
    found, file = beside(tmp_path, "preprocessor_config.json", stored)
    assert found == published.named("hf-dinov2", SIZE)
    assert file.name == "preprocessor_config.json"
    old = {"feature_extractor_type": "ViTFeatureExtractor", "size": 384, "do_normalize": False, "resample": 2}
    found, _ = beside(tmp_path, "preprocessor_config.json", old, (384, 384))
    assert (found.resize, found.squash, found.mean, found.std) == ((384, 384), True, (0.0,) * 3, (1.0,) * 3)
    found, _ = beside(
        tmp_path, "preprocessor_config.json", {"feature_extractor_type": "CLIPFeatureExtractor", "size": 224}
    )
    assert (found.resize, found.squash) == ((224, 224), False)


def test_files_that_say_nothing_or_nonsense(tmp_path: Path) -> None:
    assert published.beside(tmp_path / "model.safetensors", SIZE) is None
    assert beside(tmp_path, "config.json", {"hidden_size": 768}) is None
    for nonsense in ("{", "[1]", {"mean": 3, "std": [1]}, {"mean": [1], "std": [0]}):
        with pytest.raises(DataError, match=r"config\.json"):
            beside(tmp_path, "config.json", nonsense)
    for broken in ({"resample": 17}, {"size": "big"}, {"size": {"height": 3}}, {"image_std": [0, 0, 0]}):
        with pytest.raises(DataError, match=r"preprocessor_config\.json"):
            beside(tmp_path, "preprocessor_config.json", broken)


def test_imagenets_names() -> None:
    names = imagenet_names()
    assert len(names) == 1000
    assert (names[0], names[285], names[967]) == ("tench, Tinca tinca", "Egyptian cat", "espresso")
    assert all(name == name.strip() and name for name in names)


def test_names_from_files(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("a cat\ndog \nÉcureuil\n\n", "utf-8")
    assert read_names(tmp_path / "labels.txt", 3) == ["a cat", "dog", "Écureuil"]
    with pytest.raises(DataError, match="3 names and the model 4 classes"):
        read_names(tmp_path / "labels.txt", 4)
    with pytest.raises(DataError, match=r"missing\.txt"):
        read_names(tmp_path / "missing.txt", 4)


def test_names_beside_a_checkpoint(tmp_path: Path) -> None:
    checkpoint, config = tmp_path / "model.safetensors", tmp_path / "config.json"
    assert names_beside(checkpoint, 2) is None
    config.write_text(json.dumps({"id2label": {"0": "cat", "1": "dog"}}))
    assert names_beside(checkpoint, 2) == ["cat", "dog"]
    assert names_beside(checkpoint, 3) is None
    config.write_text(json.dumps({"id2label": {"0": "LABEL_0", "1": "LABEL_1"}}))
    assert names_beside(checkpoint, 2) is None
    config.write_text(json.dumps({"label_names": ["n1", "n2"], "label_descriptions": {"n2": "a dog"}}))
    assert names_beside(checkpoint, 2) == ["n1", "a dog"]
