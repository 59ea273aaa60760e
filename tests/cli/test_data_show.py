"""numpy-vit data show draws what training gets."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from numpy_vit.data import Augmentation, Dataset, Preprocessing, balanced_indices, load
from numpy_vit.data.mixing import Mixing, soft_targets
from numpy_vit.data.random_erasing import RandomErasing
from numpy_vit.data.randomness import batch_rng
from numpy_vit.views import contact_sheet

Cli = Callable[..., subprocess.CompletedProcess[str]]


def rows_of(train: Dataset, count: int, seed: int) -> np.ndarray:
    """The indices of the images that begin the rows."""
    chosen = balanced_indices(train.labels, count, seed)
    return chosen[np.argsort(train.labels[chosen], kind="stable")]


def check_sheet(path: Path, train: Dataset, rows: np.ndarray, epochs: list[np.ndarray]) -> None:
    """Compare a sheet with the images of the rows and what seven epochs make of them, normalised (rows, C, Y, X)."""
    part, preprocessing = train.take(rows), Preprocessing.of(train)
    mean, std = (np.reshape(values, (-1, 1, 1)) for values in (preprocessing.mean, preprocessing.std))
    seen = [np.clip(np.rint(255 * (x.astype(np.float64) * std + mean)), 0, 255).astype(np.uint8) for x in epochs]
    assert all((before != after).any() for before, after in zip([part.images, *seen[:-1]], seen, strict=True))
    names = [train.class_names[label] for label in part.labels]
    words = [word for name in names for word in (name, *(f"epoch {k}" for k in range(1, 8)))]
    images = np.stack([part.images, *seen], axis=1).reshape(-1, *train.shape)
    with Image.open(path) as sheet:
        np.testing.assert_array_equal(sheet, contact_sheet.picture(images, words, 8, train.name))


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


@pytest.mark.parametrize("mode", ["const", "pixel"])
def test_erased_images_are_shown(cli: Cli, tmp_path: Path, mode: str) -> None:
    result = cli("data", "show", "shapes:40", "--image-size", "16", "--count", "24", "--seed", "2", "--erase", "1",
                 "--erase-mode", mode, "--out", "sheet.png")  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "wrote sheet.png: 24 pictures" in result.stdout
    train = load("shapes:40", 16).train
    rows, erasing = rows_of(train, 3, 2), RandomErasing(1.0, mode)
    x = Preprocessing.of(train).apply(train.images[rows])
    check_sheet(tmp_path / "sheet.png", train, rows, [erasing.apply(x, 2, epoch, rows) for epoch in range(7)])


@pytest.mark.parametrize(("options", "mixing"), [
    (["--mixup", "0.8"], Mixing(mixup=0.8)),
    (["--mixup", "0.8", "--cutmix", "1", "--flip"], Mixing(0.8, 1.0)),
])  # fmt: skip
def test_mixed_images_are_shown(cli: Cli, tmp_path: Path, options: list[str], mixing: Mixing) -> None:
    """The rows are a batch of an even number, so that none is mixed with itself."""
    result = cli("data", "show", "digits", "--count", "20", *options, "--out", "sheet.png")
    assert result.returncode == 0, result.stderr
    assert "wrote sheet.png: 32 pictures" in result.stdout
    train = load("digits").train
    rows, preprocessing = rows_of(train, 4, 0), Preprocessing.of(train)
    targets, epochs = soft_targets(train.labels[rows], 10), []
    for epoch in range(7):
        images = Augmentation(flip="--flip" in options).apply(train.images[rows], 0, epoch, rows)
        mix = mixing.draw(batch_rng(0, epoch, 0), (4, 1, 8, 8))
        epochs.append(mixing.apply(preprocessing.apply(images), targets, mix)[0])
    check_sheet(tmp_path / "sheet.png", train, rows, epochs)


def test_a_recipe_is_shown_with_all_that_it_does(cli: Cli, tmp_path: Path) -> None:
    options = ("data", "show", "shapes:40", "--image-size", "16", "--count", "16", "--recipe", "deit")
    sheets, const, unmixed = {}, ("--erase-mode", "const"), ("--mixup", "0", "--cutmix", "0")
    for name, more in {"deit": (), "const": const, "unmixed": unmixed}.items():
        result = cli(*options, *more, "--out", f"{name}.png")
        assert result.returncode == 0, result.stderr
        sheets[name] = (tmp_path / f"{name}.png").read_bytes()
    assert len(set(sheets.values())) == 3


def test_a_folder_with_broken_files(cli: Cli, tmp_path: Path) -> None:
    for number in range(7):
        path = tmp_path / "photos" / "cat" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (20 + number, 20), (30 * number, 0, 9)).save(path)
    (tmp_path / "photos" / "cat" / "broken.jpg").write_text("hello")
    result = cli("data", "show", "folder:photos", "--image-size", "16", "--out", "sheet.png")
    assert result.returncode == 0, result.stderr
    assert "1 file left out: cat/broken.jpg: cannot be read as an image" in result.stderr
    assert "6 training and 1 test images" in result.stdout
    assert "wrote sheet.png: 6 pictures" in result.stdout
    probed = cli("probe", "x", "--data", "folder:photos", "--image-size", "16", "--json")
    assert (probed.returncode, probed.stdout) == (2, "")
    assert "1 file left out" in probed.stderr
    result = cli("data", "show", "folder:photos", "--out", "other.png")
    assert (result.returncode, len(result.stderr.splitlines())) == (2, 1)
    assert "say --image-size N" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["folder:nowhere"], "no folder nowhere"),
        (["digits", "--affine", "9"], "affine has to be in"),
        (["digits", "--repeats", "3"], "unrecognized arguments: --repeats 3"),  # how often, not how: nothing to see
        (["digits", "--padding", "8", "--pad-mode", "reflect"], "below the sides (8, 8), not 8; take constant"),
        (["digits", "--erase", "1", "--erase-mode", "rand"], "erase_mode has to be one of const, pixel, not 'rand'"),
        (["digits", "--out", "no/such/folder.png"], "no folder"),
    ],
)
def test_errors_are_one_line(cli: Cli, arguments: list[str], words: str) -> None:
    result = cli("data", "show", "--out", "sheet.png", *arguments)
    assert result.returncode == 2
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1
