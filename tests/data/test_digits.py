"""The embedded digits are those of scikit-learn, and the held-out fifth is held out."""

import gzip
import hashlib
import importlib.util
import os
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from numpy_vit.data import digits
from numpy_vit.data.idx import read_idx

ROOM = Path(str(files("numpy_vit.data")))
SCRIPT = Path(__file__).parents[2] / "scripts" / "build_digits.py"
# Of the unpacked sklearn/datasets/data/digits.csv.gz in scikit-learn 1.9.1.
CSV_SHA256 = "6ebb3d2fee246a4e99363262ddf8a00a3c41bee6014c373ed9d9216ba7f651b8"
FIRST_HELD_OUT = [2, 7, 16, 21, 28, 37, 41, 43]
SPLIT_SHA256 = "4dccf0f7e3dc4fdcf5ca1c27208195401b602c24f250e8f0bc7dcc6e7175ad71"
PER_CLASS = [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


@pytest.fixture(scope="module")
def whole():
    return read_idx(ROOM / digits.IMAGES_FILE), read_idx(ROOM / digits.LABELS_FILE)


def as_csv(images, labels):
    levels = np.rint(images.reshape(len(images), -1) / 255 * 16).astype(int)
    rows = np.column_stack([levels, labels]).tolist()
    return "".join(",".join(map(str, row)) + "\n" for row in rows).encode()


def test_every_pixel_and_label_is_scikit_learns(whole):
    assert hashlib.sha256(as_csv(*whole)).hexdigest() == CSV_SHA256


def test_the_stretch_is_injective_and_full(whole):
    assert np.unique(whole[0]).tolist() == [(v * 255 + 8) // 16 for v in range(17)]
    assert {0, 255} <= set(whole[0].ravel().tolist())


def test_the_split_is_stratified_and_whole(whole):
    images, labels = whole
    split = digits.load()
    assert split.train.images.shape == (1438, 1, 8, 8)
    assert split.test.images.shape == (359, 1, 8, 8)
    held_out = np.bincount(split.test.labels).tolist()
    assert held_out == [round(count / 5) for count in PER_CLASS]
    assert (np.bincount(split.train.labels) + held_out).tolist() == PER_CLASS
    rows = np.concatenate([split.train.images, split.test.images]).reshape(-1, 64)
    pairs = {(row.tobytes(), label) for row, label in zip(rows, _labels(split), strict=True)}
    assert pairs == {(row.tobytes(), int(label)) for row, label in zip(images, labels, strict=True)}


def _labels(split):
    return [*split.train.labels.tolist(), *split.test.labels.tolist()]


def test_no_image_is_on_both_sides():
    split = digits.load()
    train, test = ({image.tobytes() for image in part.images} for part in (split.train, split.test))
    assert len(train) == 1438  # the set has no duplicates at all, so none can leak
    assert len(test) == 359
    assert not train & test


def test_the_split_never_changes():
    # A changed split would make old results incomparable: this is the digest of the indices as first released.
    _, test = digits.stratified(read_idx(ROOM / digits.LABELS_FILE).astype(np.int64))
    assert test[:8].tolist() == FIRST_HELD_OUT
    assert hashlib.sha256(test.astype("<i8").tobytes()).hexdigest() == SPLIT_SHA256
    np.testing.assert_array_equal(digits.load().test.images, digits.load().test.images)


def test_the_attribution_names_source_licence_and_changes():
    text = (ROOM / "digits-attribution.txt").read_text(encoding="utf-8")
    for words in ("10.24432/C50P49", "CC BY 4.0", "Alpaydin", "Kaynak", "(v * 255 + 8) // 16"):
        assert words in text


def test_the_script_makes_the_same_files(whole, tmp_path):
    source = tmp_path / "digits.csv.gz"
    source.write_bytes(gzip.compress(as_csv(*whole)))
    subprocess.run([sys.executable, SCRIPT, source, "--out", tmp_path], check=True, env=_environment())
    for name in (digits.IMAGES_FILE, digits.LABELS_FILE):
        np.testing.assert_array_equal(read_idx(tmp_path / name), read_idx(ROOM / name))
    source.write_bytes(gzip.compress(as_csv(*whole)[:-2] + b"9\n"))
    refused = subprocess.run(
        [sys.executable, SCRIPT, source, "--out", tmp_path], capture_output=True, text=True, env=_environment()
    )
    assert refused.returncode == 1
    assert "is not the file" in refused.stderr


def _environment():
    spec = importlib.util.find_spec("numpy_vit")
    return {**os.environ, "PYTHONPATH": str(Path(spec.origin).parents[1])}
