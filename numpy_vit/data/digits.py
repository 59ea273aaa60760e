"""1,797 handwritten digits of 8x8 pixels that come with the package: real images without a download.

Source: E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning Repository,
1998, https://doi.org/10.24432/C50P49, CC BY 4.0; see digits-attribution.txt.  scripts/build_digits.py makes
the two files.
"""

from __future__ import annotations

from importlib.resources import as_file, files

import numpy as np

from numpy_vit.data.dataset import Dataset, Split
from numpy_vit.data.idx import IMAGES, LABELS, read_idx
from numpy_vit.tree import Array

CLASS_NAMES = tuple("0123456789")
IMAGES_FILE = "digits-images-idx3-ubyte.gz"
LABELS_FILE = "digits-labels-idx1-ubyte.gz"
HELD_OUT = 5  # one sample in five is for testing
SPLIT_SEED = 199807  # the data's month; never the training seed: every run must hold out the same samples


def load() -> Split:
    """Load the digits; the same stratified fifth of every class is held out in every run.

    Returns
    -------
    Split : images (1438, 1, 8, 8) and (359, 1, 8, 8), grey levels 0..16 stretched to 0..255; no image is in
        both.
    """
    images = _read(IMAGES_FILE, IMAGES)[:, np.newaxis]  # (n, 1, 8, 8)
    labels = _read(LABELS_FILE, LABELS).astype(np.int64)
    train, test = stratified(labels)
    return Split(
        Dataset("digits train", images[train], labels[train], CLASS_NAMES),
        Dataset("digits test", images[test], labels[test], CLASS_NAMES),
    )


def stratified(labels: Array) -> tuple[Array, Array]:
    """Return the indices to train on and the held-out ones: a fifth of each class, rounded.

    Drawn from Philox's raw bits, since NumPy promises those, and not `Generator.permutation`, for all
    versions.
    """
    draws = np.asarray(np.random.Philox(key=SPLIT_SEED).random_raw(len(labels)))
    held_out = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        by_draw = members[np.argsort(draws[members], kind="stable")]
        held_out[by_draw[: round(len(members) / HELD_OUT)]] = True
    return np.flatnonzero(~held_out), np.flatnonzero(held_out)


def _read(name: str, magic: int) -> Array:
    with as_file(files("numpy_vit.data") / name) as path:
        return read_idx(path, magic)
