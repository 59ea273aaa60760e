"""Make the digits that come with the package from scikit-learn's digits.csv.gz.

    python -m venv .venv-digits && .venv-digits/bin/pip install scikit-learn -e .
    .venv-digits/bin/python scripts/build_digits.py

or, where numpy_vit is installed and the file is at hand, `python scripts/build_digits.py PATH/digits.csv.gz`.
The text of the file is checked against its SHA-256, so the arrays are always the same; the compressed bytes
are the same for one zlib.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import importlib.util
from pathlib import Path

import numpy as np

from numpy_vit.data.digits import IMAGES_FILE, LABELS_FILE
from numpy_vit.data.idx import write_idx

TEXT_SHA256 = "6ebb3d2fee246a4e99363262ddf8a00a3c41bee6014c373ed9d9216ba7f651b8"
DATA = Path(__file__).resolve().parents[1] / "numpy_vit" / "data"


def scikit_learns_file() -> Path:
    """Return the path of digits.csv.gz in the installed scikit-learn."""
    spec = importlib.util.find_spec("sklearn")  # finds without importing
    if spec is None or spec.origin is None:
        raise SystemExit("scikit-learn is not installed: install it or give the path of its digits.csv.gz")
    return Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz"


def main() -> None:
    """Read the lines of 64 grey levels and a class, and write the two idx files."""
    parser = argparse.ArgumentParser(description="Make the digits that come with the package.")
    parser.add_argument("csv", nargs="?", type=Path, help="digits.csv.gz (default: that of scikit-learn)")
    parser.add_argument("--out", type=Path, default=DATA, help="folder to write to (default: the package's)")
    arguments = parser.parse_args()
    source = arguments.csv or scikit_learns_file()
    text = gzip.decompress(source.read_bytes())
    if hashlib.sha256(text).hexdigest() != TEXT_SHA256:
        raise SystemExit(f"{source} is not the file that the package was made from (SHA-256 {TEXT_SHA256})")
    lines = text.decode("ascii").splitlines()
    rows = np.array([line.split(",") for line in lines]).astype(np.int64)  # (1797, 65)
    stretched = (rows[:, :-1] * 255 + 8) // 16
    write_idx(arguments.out / IMAGES_FILE, stretched.astype(np.uint8).reshape(-1, 8, 8))
    write_idx(arguments.out / LABELS_FILE, rows[:, -1].astype(np.uint8))


if __name__ == "__main__":
    main()
