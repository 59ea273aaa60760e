"""numpy-vit data show draws what training gets."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from numpy_vit.data import Augmentation, balanced_indices, load
from numpy_vit.views import contact_sheet

Cli = Callable[..., subprocess.CompletedProcess[str]]


def test_a_plain_sheet_shows_every_class(cli: Cli, tmp_path: Path) -> None:
    result = cli("data", "show", "digits", "--count", "20", "--seed", "3", "--out", "sheet.png")
    assert result.returncode == 0, result.stderr
    assert "digits: 1,438 training and 359 test images, 1x8x8, 10 classes" in result.stdout
    assert "0 142, 1 146" in result.stdout
    assert "wrote sheet.png: 20 pictures" in result.stdout
    train = load("digits").train
    chosen = balanced_indices(train.labels, 20, 3)
    chosen = chosen[np.argsort(train.labels[chosen], kind="stable")]
    expected = contact_sheet.picture(train.images[chosen], [str(k // 2) for k in range(20)], 8, "digits train")
    with Image.open(tmp_path / "sheet.png") as sheet:
        np.testing.assert_array_equal(sheet, expected)


def test_augmented_rows_are_what_the_epochs_train_on(cli: Cli, tmp_path: Path) -> None:
    result = cli("data", "show", "shapes:40", "--image-size", "16", "--count", "9", "--padding", "2", "--flip",
                 "--affine", "0.5", "--out", "sheet.png")  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "wrote sheet.png: 16 pictures" in result.stdout  # two rows of eight
    train = load("shapes:40", 16).train
    chosen = balanced_indices(train.labels, 2, 0)
    chosen = chosen[np.argsort(train.labels[chosen], kind="stable")]
    part, augmentation = train.take(chosen), Augmentation(2, True, affine=0.5)
    versions = [part.images, *(augmentation.apply(part.images, 0, epoch, chosen) for epoch in range(7))]
    names = [train.class_names[label] for label in part.labels]
    words = [word for name in names for word in (name, *(f"epoch {k}" for k in range(1, 8)))]
    expected = contact_sheet.picture(np.stack(versions, 1).reshape(-1, 3, 16, 16), words, 8, "shapes train")
    with Image.open(tmp_path / "sheet.png") as sheet:
        np.testing.assert_array_equal(sheet, expected)


def test_a_folder_with_broken_files(cli: Cli, tmp_path: Path) -> None:
    for number in range(7):
        path = tmp_path / "photos" / "cat" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (20 + number, 20), (30 * number, 0, 9)).save(path)
    (tmp_path / "photos" / "cat" / "broken.jpg").write_text("hello")
    result = cli("data", "show", "folder:photos", "--image-size", "16", "--out", "sheet.png")
    assert result.returncode == 0, result.stderr
    assert "1 file left out: cat/broken.jpg: cannot be read as an image" in result.stdout
    assert "6 training and 1 test images" in result.stdout
    assert "wrote sheet.png: 6 pictures" in result.stdout
    result = cli("data", "show", "folder:photos", "--out", "other.png")
    assert (result.returncode, len(result.stderr.splitlines())) == (2, 1)
    assert "say --image-size N" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["folder:nowhere"], "no folder nowhere"),
        (["digits", "--affine", "9"], "affine has to be in"),
        (["digits", "--out", "no/such/folder.png"], "no folder"),
    ],
)
def test_errors_are_one_line(cli: Cli, arguments: list[str], words: str) -> None:
    result = cli("data", "show", "--out", "sheet.png", *arguments)
    assert result.returncode == 2
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1
