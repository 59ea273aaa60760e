"""Which data sets can be fetched: their files, how large they are, their checksums and where they lie.

Sources: the addresses, names and MD5s are those that torchvision checks; the sizes of MNIST and Fashion-MNIST are
those that TensorFlow Datasets records.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from numpy_vit.data.mnist import FASHION_MNIST_ADDRESS, MNIST_ADDRESS
from numpy_vit.errors import DataError

CIFAR_ADDRESS = "https://www.cs.toronto.edu/~kriz/"


@dataclass(frozen=True)
class PublishedFile:
    """A file as its publisher made it.

    Parameters
    ----------
    name : below each of the release's addresses, and in the folder that it is fetched to.
    size : bytes.
    md5 : checksum in hexadecimal; it finds damage, and secures nothing.
    """

    name: str
    size: int
    md5: str


@dataclass(frozen=True)
class Release:
    """A data set that can be fetched.

    Parameters
    ----------
    about : one line for people.
    files : all of them are needed.
    addresses : mirrors, tried in this order; each ends with a slash.
    """

    about: str
    files: tuple[PublishedFile, ...]
    addresses: tuple[str, ...]

    @property
    def size(self) -> int:
        """The bytes of all files."""
        return sum(file.size for file in self.files)


RELEASES = {
    "mnist": Release(
        "70,000 handwritten digits, 28x28",
        (
            PublishedFile("train-images-idx3-ubyte.gz", 9_912_422, "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
            PublishedFile("train-labels-idx1-ubyte.gz", 28_881, "d53e105ee54ea40749a09fcbcd1e9432"),
            PublishedFile("t10k-images-idx3-ubyte.gz", 1_648_877, "9fb629c4189551a2d022fa330f9573f3"),
            PublishedFile("t10k-labels-idx1-ubyte.gz", 4_542, "ec29112dd5afa0611ce80d1b7f02629c"),
        ),
        (MNIST_ADDRESS, "http://yann.lecun.com/exdb/mnist/"),
    ),
    "fashion-mnist": Release(
        "70,000 pieces of clothing, 28x28",
        (
            PublishedFile("train-images-idx3-ubyte.gz", 26_421_880, "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
            PublishedFile("train-labels-idx1-ubyte.gz", 29_515, "25c81989df183df01b3e8a0aad5dffbe"),
            PublishedFile("t10k-images-idx3-ubyte.gz", 4_422_102, "bef4ecab320f06d8554ea6380940ec79"),
            PublishedFile("t10k-labels-idx1-ubyte.gz", 5_148, "bb300cfdad3c16e7a12a480ee83cd310"),
        ),
        (FASHION_MNIST_ADDRESS,),
    ),
    "cifar10": Release(
        "60,000 photographs of 10 classes, 32x32 in colour",
        (PublishedFile("cifar-10-python.tar.gz", 170_498_071, "c58f30108f718f92721af3b95e74349a"),),
        (CIFAR_ADDRESS,),
    ),
    "cifar100": Release(
        "60,000 photographs of 100 classes, 32x32 in colour",
        (PublishedFile("cifar-100-python.tar.gz", 169_001_437, "eb9058c3a382ffc7106e4002c42a8d85"),),
        (CIFAR_ADDRESS,),
    ),
}


def release(name: str) -> Release:
    """Return the release that `name` means.

    Raises
    ------
    DataError : there is none of that name.
    """
    if name not in RELEASES:
        raise DataError(f"no data set {name!r} can be fetched; choose one of {', '.join(RELEASES)}")
    return RELEASES[name]


def data_home() -> Path:
    """Return the folder of fetched data: the environment's NUMPY_VIT_DATA, or ~/.cache/numpy_vit."""
    return Path(os.path.expanduser(os.getenv("NUMPY_VIT_DATA") or "~/.cache/numpy_vit"))  # noqa: PTH111


def home(name: str) -> Path:
    """Return the folder that `name` is fetched to where none is given."""
    return data_home() / name
