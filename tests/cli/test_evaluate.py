"""numpy-vit eval agrees with the run that wrote the checkpoint."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from numpy_vit import tree
from numpy_vit.checkpoints import own, safetensors
from numpy_vit.data import load

Cli = Callable[..., subprocess.CompletedProcess[str]]


def test_eval_is_the_accuracy_of_the_last_epoch(cli: Cli, tmp_path: Path, tiny: tuple[str, ...]) -> None:
    assert cli("train", "--epochs", "2", "--out", "a", *tiny).returncode == 0
    last = json.loads((tmp_path / "a" / "metrics.jsonl").read_text().splitlines()[-1])
    found = json.loads(cli("eval", "a", "--json").stdout)
    assert found["accuracy"] == last["test_accuracy"]
    assert found["loss"] == pytest.approx(last["test_loss"], rel=1e-6)
    counts, labels = np.array(found["confusion"]), load("digits").test.labels
    np.testing.assert_array_equal(counts.sum(axis=1), np.bincount(labels))
    assert found["accuracy"] == np.trace(counts) / len(labels)
    assert found["accuracy"] <= found["top5"] <= 1
    assert found["per_class"]["3"] == counts[3, 3] / counts[3].sum()
    text = cli("eval", "a/checkpoint.safetensors")
    assert text.stdout.startswith(f"digits, test part, 359 images: accuracy {found['accuracy']:.2%}")
    assert "predicted" in text.stdout
    train = json.loads(cli("eval", "a", "--part", "train", "--json").stdout)
    assert train["images"] == 1438


def test_the_data_come_in_the_size_of_the_model(cli: Cli, tmp_path: Path, tiny: tuple[str, ...]) -> None:
    assert cli("train", "--image-size", "16", "--epochs", "1", "--out", "a", *tiny).returncode == 0
    last = json.loads((tmp_path / "a" / "metrics.jsonl").read_text().splitlines()[-1])
    assert json.loads(cli("eval", "a", "--json").stdout)["accuracy"] == last["test_accuracy"]


def test_the_images_are_those_that_the_run_chose(cli: Cli, tmp_path: Path, tiny: tuple[str, ...]) -> None:
    assert (
        cli("train", "--test-images", "30", "--train-images", "40", "--epochs", "1", "--out", "a", *tiny).returncode
        == 0
    )
    last = json.loads((tmp_path / "a" / "metrics.jsonl").read_text().splitlines()[-1])
    found = json.loads(cli("eval", "a", "--json").stdout)
    assert (found["images"], found["accuracy"]) == (30, last["test_accuracy"])
    assert json.loads(cli("eval", "a", "--part", "train", "--json").stdout)["images"] == 40
    assert json.loads(cli("eval", "a", "--data", "digits", "--json").stdout)["images"] == 359


def test_runs_of_earlier_versions_have_their_choice_in_config_json_only(
    cli: Cli, tmp_path: Path, tiny: tuple[str, ...]
) -> None:
    assert cli("train", "--test-images", "30", "--epochs", "1", "--out", "a", *tiny).returncode == 0
    file = tmp_path / "a" / "checkpoint.safetensors"
    written = own.load(file)
    about = {key: value for key, value in written.extra.items() if key != "selection"}
    own.save(file, written.config, written.params, about)
    assert json.loads(cli("eval", "a", "--json").stdout)["images"] == 30
    (tmp_path / "a" / "config.json").write_text('{"data": {"name": "shapes", "test_images": 30}}')  # another run's
    assert json.loads(cli("eval", "a", "--json").stdout)["images"] == 359


def test_a_choice_that_is_broken_is_one_line(cli: Cli, tmp_path: Path, tiny: tuple[str, ...]) -> None:
    assert cli("train", "--test-images", "30", "--epochs", "1", "--out", "a", *tiny).returncode == 0
    file = tmp_path / "a" / "checkpoint.safetensors"
    written = own.load(file)
    own.save(file, written.config, written.params, {**written.extra, "selection": {"name": "digits", "image_size": 8}})
    result = cli("eval", "a")
    assert (result.returncode, len(result.stderr.splitlines())) == (2, 1), result.stderr


def test_logits_that_are_not_finite_are_not_written(cli: Cli, tmp_path: Path, tiny: tuple[str, ...]) -> None:
    assert cli("train", "--epochs", "1", "--out", "a", *tiny).returncode == 0
    file = tmp_path / "a" / "checkpoint.safetensors"
    written = own.load(file)
    own.save(file, written.config, tree.map(lambda array: array * np.nan, written.params), written.extra)
    for options, message in [
        (("--logits", "a.npz"), "logits that are not finite"),
        (("--logits", "nowhere/a.npz"), "a folder that exists"),
        (("--image-size", "16"), "name the file that it learns from with --logits"),
    ]:
        result = cli("eval", "a", *options)
        assert (result.returncode, len(result.stderr.splitlines())) == (2, 1), result.stderr
        assert message in result.stderr
    assert not list(tmp_path.rglob("*.npz"))


def test_what_is_not_a_checkpoint_is_refused(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "noise").write_bytes(b"\x00" * 100)
    safetensors.write(tmp_path / "foreign", {"a": np.zeros(3)}, {})
    for name in ("noise", "foreign"):
        result = cli("eval", name)
        assert result.returncode == 2
        assert name in result.stderr
        assert len(result.stderr.splitlines()) == 1
