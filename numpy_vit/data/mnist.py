"""MNIST and Fashion-MNIST from a folder with their four idx files.

Sources: Y. LeCun, L. Bottou, Y. Bengio and P. Haffner, Gradient-based learning applied to document
recognition, Proc. IEEE 86, 1998; H. Xiao, K. Rasul and R. Vollgraf, Fashion-MNIST, arXiv:1708.07747, 2017.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from numpy_vit.data.dataset import Dataset, Split
from numpy_vit.data.idx import IMAGES, LABELS, read_idx
from numpy_vit.errors import DataError

MNIST_CLASSES = tuple("0123456789")
MNIST_ADDRESS = "https://ossci-datasets.s3.amazonaws.com/mnist/"
FASHION_MNIST_CLASSES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
FASHION_MNIST_ADDRESS = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
DEBIAN_FASHION_MNIST = "/usr/share/datasets/fashion-mnist"
DEBIAN_COMMAND = "apt-get install dataset-fashion-mnist"
SIDE = 28


def load_mnist(folder: str | os.PathLike[str]) -> Split:
    """Load MNIST: 60,000 digits to train on and 10,000 to test, (n, 1, 28, 28).

    Parameters
    ----------
    folder : holds train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and
        t10k-labels-idx1-ubyte, each with or without .gz, or spelt train-images.idx3-ubyte.

    Raises
    ------
    DataError : the folder or a file is missing or broken; the text says where to get it.
    """
    return _load("mnist", Path(folder), MNIST_CLASSES, MNIST_ADDRESS)


def load_fashion_mnist(folder: str | os.PathLike[str] = DEBIAN_FASHION_MNIST) -> Split:
    """Load Fashion-MNIST: 60,000 pieces of clothing to train on and 10,000 to test, (n, 1, 28, 28).

    Parameters
    ----------
    folder : as for `load_mnist`; default: where Debian's dataset-fashion-mnist puts the files.

    Raises
    ------
    DataError : the folder or a file is missing or broken; the text says where to get it.
    """
    debian = f"on Debian and Ubuntu: {DEBIAN_COMMAND}, which fills {DEBIAN_FASHION_MNIST}"
    address = f"{FASHION_MNIST_ADDRESS} ({debian})"
    return _load("fashion-mnist", Path(folder), FASHION_MNIST_CLASSES, address)


def _load(name: str, folder: Path, class_names: tuple[str, ...], address: str) -> Split:
    if not folder.is_dir():
        raise DataError(
            f"no folder {folder}: put the four files train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz, "
            f"t10k-images-idx3-ubyte.gz and t10k-labels-idx1-ubyte.gz there, from {address}"
        )
    return Split(
        _load_part(f"{name} train", folder, "train", class_names, address),
        _load_part(f"{name} test", folder, "t10k", class_names, address),
    )


def _load_part(name: str, folder: Path, prefix: str, class_names: tuple[str, ...], address: str) -> Dataset:
    images_path = _find(folder, f"{prefix}-images", "idx3-ubyte", address)
    labels_path = _find(folder, f"{prefix}-labels", "idx1-ubyte", address)
    images = read_idx(images_path, IMAGES)
    labels = read_idx(labels_path, LABELS)
    if images.shape[1:] != (SIDE, SIDE):
        raise DataError(
            f"{images_path} has images of {images.shape[1]}x{images.shape[2]}, {name} has {SIDE}x{SIDE}; "
            f"get the right file from {address}"
        )
    return Dataset(name, images[:, np.newaxis], labels.astype(np.int64), class_names)


def _find(folder: Path, stem: str, kind: str, address: str) -> Path:
    spellings = [f"{stem}{joint}{kind}{ending}" for joint in "-." for ending in ("", ".gz")]
    for spelling in spellings:
        if (folder / spelling).is_file():
            return folder / spelling
    raise DataError(
        f"{folder} has no {spellings[0]} (nor {', '.join(spellings[1:])}): get {spellings[1]} from {address}"
    )
