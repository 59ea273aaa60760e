"""numpy-vit predict: real models on real pictures, our own checkpoints, and pictures that cannot be read."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from numpy_vit import tree
from numpy_vit.checkpoints import own, safetensors
from numpy_vit.checkpoints.layouts.families import FAMILIES
from numpy_vit.cli.main import main
from numpy_vit.data import Preprocessing, load
from numpy_vit.data.published import RECIPES
from numpy_vit.models import vit

Cli = Callable[..., subprocess.CompletedProcess[str]]
REAL = Path(os.environ.get("NUMPY_VIT_REAL", "nowhere"))
VIT_TINY = REAL / "vit_tiny_patch16_224" / "model.safetensors"
real = pytest.mark.skipif(not VIT_TINY.is_file(), reason="NUMPY_VIT_REAL does not name a folder with ViT-Ti/16")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run's folder with a model for the digits, and beside it pictures of the first three test digits."""
    digits = load("digits")
    config = vit.Config(8, 2, 1, 10, 16, 1, 2)
    params = tree.map(lambda leaf: leaf + 0.1, vit.init(config, np.random.default_rng(0)))
    about = {"preprocessing": Preprocessing.of(digits.train).to_json(), "class_names": list(digits.train.class_names)}
    (tmp_path / "run").mkdir()
    own.save(tmp_path / "run" / "checkpoint.safetensors", config, params, about)
    for i, image in enumerate(digits.test.images[:3]):
        Image.fromarray(image[0]).save(tmp_path / f"{i}.png")
    return tmp_path / "run"


@real
def test_a_real_model_sees_a_cat_and_an_espresso(cli: Cli) -> None:
    photos = [str(REAL / "photos" / name) for name in ("chelsea.png", "coffee.png")]
    result = cli("predict", *photos, "--checkpoint", str(VIT_TINY), "--json", "--top", "3")
    assert (result.returncode, result.stderr) == (0, "")
    found = json.loads(result.stdout)
    cat, espresso = (image["top"] for image in found["images"])
    assert (cat[0]["name"], espresso[0]["name"]) == ("Egyptian cat", "espresso")
    assert cat[0]["probability"] == pytest.approx(0.81, abs=0.005)
    assert espresso[0]["probability"] == pytest.approx(0.94, abs=0.005)
    assert len(cat) == 3
    assert found["preprocessing"]["resize"] == [248, 248]
    assert found["preprocessing"]["from"].startswith("assumed")
    text = cli("predict", *photos, "--checkpoint", str(VIT_TINY)).stdout
    assert next(line for line in text.splitlines() if "Egyptian cat" in line).split()[:2] == ["81.3%", "285"]
    assert all(photo in text for photo in photos)


@real
@pytest.mark.framework
@pytest.mark.parametrize("kind", ["zip", "legacy", "training"])
def test_a_file_of_torch_save_says_the_same(cli: Cli, tmp_path: Path, kind: str) -> None:
    torch = pytest.importorskip("torch")
    state = {name: torch.from_numpy(value) for name, value in safetensors.read(VIT_TINY)[0].items()}
    stored = {"model": {f"module.{key}": leaf for key, leaf in state.items()}} if kind == "training" else state
    torch.save(stored, tmp_path / "vit.pt", _use_new_zipfile_serialization=kind != "legacy")
    photo = str(REAL / "photos" / "coffee.png")
    (there, here) = (
        json.loads(cli("predict", photo, "--checkpoint", name, "--json").stdout)["images"]
        for name in (str(VIT_TINY), "vit.pt")
    )
    assert there == here


@real
def test_other_preprocessing_changes_the_answer(cli: Cli) -> None:
    photo, common = str(REAL / "photos" / "chelsea.png"), ("--checkpoint", str(VIT_TINY), "--json")
    usual = json.loads(cli("predict", photo, *common).stdout)
    other = json.loads(cli("predict", photo, *common, "--preprocessing", "torchvision").stdout)
    assert other["preprocessing"]["mean"][0] == 0.485
    assert other["preprocessing"]["resample"] == "bilinear"
    assert abs(other["images"][0]["top"][0]["logit"] - usual["images"][0]["top"][0]["logit"]) > 0.01


def test_every_family_of_checkpoints_has_its_preprocessing() -> None:
    assert FAMILIES.keys() <= RECIPES.keys()


def test_a_run_predicts_as_in_training(cli: Cli, run: Path, tiny: tuple[str, ...]) -> None:
    assert cli("train", "--epochs", "1", "--out", "trained", *tiny).returncode == 0
    (run / "checkpoint.safetensors").write_bytes((run.parent / "trained" / "checkpoint.safetensors").read_bytes())
    result = cli("predict", "0.png", "1.png", "2.png", "--checkpoint", "run", "--top", "10", "--json")
    assert (result.returncode, result.stderr) == (0, "")
    found = json.loads(result.stdout)
    checkpoint = own.load(run / "checkpoint.safetensors")
    preprocessing = Preprocessing.from_json(checkpoint.extra["preprocessing"])
    images = preprocessing.apply(load("digits").test.images[:3])
    logits = vit.predict(checkpoint.params, images, checkpoint.config)
    for image, expected in zip(found["images"], logits, strict=True):
        top = image["top"]
        assert [one["index"] for one in top] == np.argsort(-expected, kind="stable").tolist()
        np.testing.assert_allclose([one["logit"] for one in top], np.sort(expected)[::-1], atol=1e-5)
        assert sum(one["probability"] for one in top) == pytest.approx(1)
        assert [one["name"] for one in top] == [str(one["index"]) for one in top]
    assert found["preprocessing"]["from"] == "from the checkpoint"


def test_pictures_that_cannot_be_read_do_not_stop_the_others(cli: Cli, run: Path, tmp_path: Path) -> None:
    (tmp_path / "noise.png").write_bytes(b"\x89PNG nothing")
    result = cli("predict", "missing.png", "0.png", "noise.png", "--checkpoint", "run")
    assert result.returncode == 2
    assert [line.split(":")[1].strip() for line in result.stderr.splitlines()] == ["missing.png", "noise.png"]
    assert "\n0.png\n" in result.stdout
    found = json.loads(cli("predict", "0.png", "noise.png", "--checkpoint", "run", "--json").stdout)
    assert [sorted(image) for image in found["images"]] == [["file", "top"], ["error", "file"]]


def test_labels(cli: Cli, run: Path, tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("\n".join("abcdefghij"))
    top = json.loads(cli("predict", "0.png", "--checkpoint", "run", "--labels", "labels.txt", "--json").stdout)
    assert all("abcdefghij"[one["index"]] == one["name"] for one in top["images"][0]["top"])
    (tmp_path / "labels.txt").write_text("a\nb")
    result = cli("predict", "0.png", "--checkpoint", "run", "--labels", "labels.txt")
    assert (result.returncode, len(result.stderr.splitlines())) == (2, 1)
    assert "2 names and the model 10 classes" in result.stderr


@pytest.mark.parametrize(
    ("checkpoint", "options", "words"),
    [
        ("missing", (), "missing"),
        ("0.png", (), "0.png"),
        ("headless", (), "no classification head"),
        ("nan", ("--preprocessing", "timm"), "inspect"),
        ("four", (), "1 (grey) or 3"),
        ("run", ("--preprocessing", "vgg"), "choose one of"),
        ("run", ("--top", "0"), "--top"),
    ],
)
def test_what_cannot_be_is_one_line(
    run: Path,
    checkpoint: str,
    options: tuple[str, ...],
    words: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(run.parent)
    changes = {"headless": {"num_classes": 0}, "nan": {}, "four": {"in_chans": 4}}.get(checkpoint)
    if changes is not None:
        config = vit.Config(8, 2, embed_dim=8, depth=1, num_heads=2, **{"num_classes": 10, "in_chans": 1, **changes})
        params = vit.init(config, np.random.default_rng(0))
        params["norm"]["bias"][:] = np.nan
        own.save(checkpoint, config, params, {})
    assert status(["predict", "0.png", "--checkpoint", checkpoint, *options]) == 2
    written = capsys.readouterr().err
    assert len(written.splitlines()) == 1, written
    assert words in written


def status(arguments: list[str]) -> int:
    try:
        return main(arguments)
    except SystemExit as left:  # argparse
        return int(str(left.code))
