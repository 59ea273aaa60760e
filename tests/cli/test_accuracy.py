"""Whole runs: the accuracies that the README promises, with room for another machine's rounding."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from numpy_vit.data.mnist import DEBIAN_FASHION_MNIST

pytestmark = pytest.mark.slow


def last_row(folder: Path, *options: str) -> dict[str, float]:
    command = [sys.executable, "-m", "numpy_vit", "train", "--out", "run", *options]
    subprocess.run(command, cwd=folder, check=True, timeout=1200, capture_output=True)
    row: dict[str, float] = json.loads((folder / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    return row


def test_digits(tmp_path: Path) -> None:
    assert last_row(tmp_path, "--seed", "1")["test_accuracy"] >= 0.97


@pytest.mark.skipif(not Path(DEBIAN_FASHION_MNIST).is_dir(), reason="Debian's dataset-fashion-mnist is not installed")
def test_two_epochs_of_fashion_mnist(tmp_path: Path) -> None:
    assert last_row(tmp_path, "--data", "fashion-mnist", "--epochs", "2")["test_accuracy"] >= 0.8


@pytest.mark.skipif(not Path(DEBIAN_FASHION_MNIST).is_dir(), reason="Debian's dataset-fashion-mnist is not installed")
@pytest.mark.parametrize("data", ["digits", "fashion-mnist"])
def test_thirty_two_images_are_learned_by_heart(tmp_path: Path, data: str) -> None:
    command = [sys.executable, "-m", "numpy_vit", "train", "--data", data, "--overfit", "32"]
    result = subprocess.run(command, cwd=tmp_path, check=True, timeout=300, capture_output=True, text=True)
    assert result.stdout.startswith("32 images: 100% correct, loss 0.0")
    assert "the model can learn" in result.stdout
