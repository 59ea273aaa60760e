"""Folders of image files become data sets: which files count, which part they belong to, and what is refused."""

from __future__ import annotations

import os
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from numpy_vit.data.dataset import statistics
from numpy_vit.data.folders import describe_skipped, load_folder
from numpy_vit.data.streamed import StreamedDataset
from numpy_vit.errors import DataError

ARCHIVE = Path(os.environ.get("NUMPY_VIT_REAL", "")) / "cifar10_jpeg.tar.gz"


def pixels(number: int, height: int = 6, width: int = 6) -> np.ndarray:
    return np.random.default_rng(number).integers(0, 256, (height, width, 3), np.uint8)


def save(path: Path, number: int, height: int = 6, width: int = 6) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels(number, height, width)).save(path)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Two parts of cats and dogs; the image with number n is made from seed n."""
    root = tmp_path / "photos"
    for number, path in enumerate(
        ["train/dog/b.png", "train/dog/a.PNG", "train/cat/deep/er/c.bmp", "train/cat/d.tif", "val/cat/e.tiff",
         "val/dog/f.webp"]
    ):  # fmt: skip
        if path.endswith(".webp"):
            (root / path).parent.mkdir(parents=True)
            Image.fromarray(pixels(number)).save(root / path, lossless=True)
        else:
            save(root / path, number)
    return root


def test_parts_classes_and_files_are_found_in_order(photos: Path) -> None:
    (photos / "train" / "cat" / ".hidden.png").write_bytes(b"")
    (photos / "train" / "cat" / "notes.txt").write_text("no image")
    (photos / ".git").mkdir()
    (photos / "train" / ".thumbnails").mkdir()
    save(photos / "train" / "cat" / ".cache" / "x.png", 99)
    data = load_folder(photos)
    assert data.train.class_names == data.test.class_names == ("cat", "dog")
    assert data.train.labels.tolist() == [0, 0, 1, 1]
    assert data.test.labels.tolist() == [0, 1]
    expected = [pixels(number).transpose(2, 0, 1) for number in (3, 2, 1, 0)]  # d, deep/er/c, a, b
    np.testing.assert_array_equal(data.train.take(range(4)).images, expected)
    np.testing.assert_array_equal(data.test.take(range(2)).images, [pixels(n).transpose(2, 0, 1) for n in (4, 5)])
    assert data.train.name == "photos train"
    assert data.test.name == "photos val"
    assert data.train.skipped == data.test.skipped == ()


@pytest.mark.parametrize("most_in_memory", [0, 10**9])
def test_without_parts_every_fifth_file_is_held_out(tmp_path: Path, most_in_memory: int) -> None:
    for number in range(11):
        save(tmp_path / "kinds" / "a" / f"{number:02}.png", number)
    for number in range(3):
        save(tmp_path / "kinds" / "b" / f"{number:02}.png", 20 + number)
    data = load_folder(tmp_path / "kinds", most_in_memory=most_in_memory)
    held_out = [4, 9]
    kept = [number for number in range(11) if number not in held_out] + [20, 21, 22]
    test, train = data.test.take(range(2)), data.train.take(range(12))
    np.testing.assert_array_equal(test.images, [pixels(n).transpose(2, 0, 1) for n in held_out])
    np.testing.assert_array_equal(train.images, [pixels(n).transpose(2, 0, 1) for n in kept])
    assert test.labels.tolist() == [0, 0]
    assert "every fifth file" in data.test.name


def test_a_set_on_disk_is_the_set_in_memory(photos: Path) -> None:
    inside, outside = (load_folder(photos, (4, 5), most_in_memory=most) for most in (10**9, 0))
    assert isinstance(outside.train, StreamedDataset)
    assert not isinstance(inside.train, StreamedDataset)
    for part in ("train", "test"):
        ours, theirs = getattr(inside, part), getattr(outside, part)
        np.testing.assert_array_equal(ours.images, theirs.take(range(len(theirs))).images)
        np.testing.assert_array_equal(ours.labels, theirs.labels)
        assert ours.shape == theirs.shape == (3, 4, 5)


@pytest.mark.parametrize("most_in_memory", [0, 10**9])
@pytest.mark.parametrize("size", [None, (6, 6)])
def test_broken_files_are_left_out_and_named(photos: Path, size: tuple[int, int] | None, most_in_memory: int) -> None:
    (photos / "train" / "cat" / "text.jpg").write_text("hello")
    (photos / "train" / "dog" / "empty.jpeg").write_bytes(b"")
    (photos / "train" / "dog" / "link.png").symlink_to("nowhere")
    Image.fromarray(pixels(0)[..., 0].astype(np.float32)).save(photos / "train" / "dog" / "floats.tif")
    data = load_folder(photos, size, most_in_memory=most_in_memory)
    assert len(data.train) == 4
    assert [line.partition(":")[0] for line in data.train.skipped] == [
        "cat/text.jpg", "dog/empty.jpeg", "dog/floats.tif", "dog/link.png",
    ]  # fmt: skip
    assert data.test.skipped == ()
    line = describe_skipped(data.train.skipped)
    assert line.startswith("4 files left out: cat/text.jpg: cannot be read as an image")
    assert "\n" not in line


def test_a_cut_file_is_left_out_in_memory_and_grey_on_disk(photos: Path) -> None:
    whole = (photos / "train" / "dog" / "b.png").read_bytes()
    (photos / "train" / "dog" / "cut.png").write_bytes(whole[:-40])
    inside, outside = (load_folder(photos, most_in_memory=most).train for most in (10**9, 0))
    assert len(inside) == 4
    assert [line.partition(":")[0] for line in inside.skipped] == ["dog/cut.png"]
    np.testing.assert_array_equal(inside.take([3]).images[0], pixels(0).transpose(2, 0, 1))
    assert outside.skipped == ()  # its first bytes are right
    taken = outside.take(range(5))
    assert (taken.images[4] == 128).all()
    assert taken.skipped == outside.skipped == inside.skipped
    outside.take([4, 4])
    assert len(outside.skipped) == 1


@pytest.mark.parametrize("most_in_memory", [0, 10**9])
@pytest.mark.parametrize("size", [None, (6, 6)])
def test_decompression_bombs_are_refused_without_decoding(
    photos: Path, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int] | None, most_in_memory: int
) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 36)
    bombs = {"small.png": (7, 6), "large.png": (20, 20)}  # Pillow warns of the first and refuses the second
    for name, (height, width) in bombs.items():
        save(photos / "train" / "dog" / name, 0, height, width)
    decoded = []
    original = Image.Image.convert
    monkeypatch.setattr(Image.Image, "convert", lambda self, mode: decoded.append(self.size) or original(self, mode))
    data = load_folder(photos, size, most_in_memory=most_in_memory)
    assert [line.partition(":")[0] for line in data.train.skipped] == ["dog/large.png", "dog/small.png"]
    assert "42 pixels, more than the 36" in data.train.skipped[1]
    assert set(decoded) <= {(6, 6)}


def test_sizes_that_differ_need_a_size(photos: Path) -> None:
    save(photos / "train" / "cat" / "small.png", 0, 3, 5)
    save(photos / "val" / "cat" / "large.png", 0, 40, 7)
    with pytest.raises(DataError, match=r"differ in size \(from 5x3 to 7x40\): say --image-size N"):
        load_folder(photos)
    assert load_folder(photos, (4, 4)).train.shape == (3, 4, 4)


def test_progress_ends_at_all_files(photos: Path) -> None:
    calls: list[tuple[int, int]] = []
    load_folder(photos, None, lambda done, total: calls.append((done, total)))
    assert calls == [(4, 6), (6, 6)] * 2  # first their sizes, then their pixels


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda root: shutil.rmtree(root), "no folder"),
        (lambda root: [shutil.rmtree(root / part) for part in ("train", "val")], "no sub-folders"),
        (lambda root: (root / "train" / "bird").mkdir(), "bird has no image"),
        (lambda root: shutil.rmtree(root / "val" / "dog"), "different classes: dog is in one of them only"),
        (lambda root: shutil.rmtree(root / "val"), "train but none of test, val"),
        (lambda root: (root / "val" / "cat" / "e.tiff").write_bytes(b"II"), "class cat in photos val can be read"),
        (lambda root: shutil.rmtree(root / "val") or (root / "train").rename(root / "x"), "no class has 5 images"),
    ],
)  # fmt: skip
def test_what_is_no_data_set_is_refused_in_a_line(photos: Path, change: object, words: str) -> None:
    change(photos)  # type: ignore[operator]
    with pytest.raises(DataError) as caught:
        load_folder(photos)
    assert words in str(caught.value)
    assert str(photos) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_only_five_skipped_files_are_named() -> None:
    assert describe_skipped([]) == ""
    assert describe_skipped(["a: b"]) == "1 file left out: a: b"
    assert describe_skipped([f"{i}: x" for i in range(1007)]).endswith("4: x; and 1,002 more")


@pytest.mark.slow
@pytest.mark.skipif(not ARCHIVE.is_file(), reason="NUMPY_VIT_REAL does not name a folder with cifar10_jpeg.tar.gz")
def test_sixty_thousand_real_photographs(tmp_path: Path) -> None:
    with tarfile.open(ARCHIVE) as files:
        files.extractall(tmp_path, filter="data")
    data = load_folder(tmp_path)
    assert (len(data.train), len(data.test)) == (50_000, 10_000)
    assert data.train.shape == (3, 32, 32)
    assert np.bincount(data.train.labels).tolist() == [5000] * 10
    assert data.train.class_names[3] == "cat"
    for index in (0, 17_003, 49_999):
        kind = data.train.class_names[data.train.labels[index]]
        path = sorted((tmp_path / "train" / kind).iterdir())[index % 5000]
        expected = np.asarray(Image.open(path)).transpose(2, 0, 1)
        np.testing.assert_array_equal(data.train.take([index]).images[0], expected)
    mean, _ = statistics(data.train.take(range(50_000)).images)
    np.testing.assert_allclose(mean, (0.4914, 0.4822, 0.4465), atol=2e-4)  # CIFAR-10's, as published everywhere
