"""The data sets by name: what `--data` understands.

A specification is a name, or a name and its place: `digits`, `fashion-mnist`, `mnist:FOLDER`, `folder:PATH`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from numpy_vit.data import cifar, digits, folders, mnist, registry, shapes
from numpy_vit.data.dataset import Split
from numpy_vit.data.resized import resized
from numpy_vit.data.streamed import OnProgress, silent
from numpy_vit.errors import DataError

Size: TypeAlias = tuple[int, int]  # (Y, X)


@dataclass(frozen=True)
class Source:
    """A row of the table: how to load a data set and what stands after its colon.

    Parameters
    ----------
    load : called with the place, the size (Y, X) that is wanted or None for the images' own, and on_progress.
    about : one line for people.
    place : what the place is, "FOLDER"; None where there is none.
    default : the place where none is given; None where it must be.
    """

    load: Callable[[str, Size | None, OnProgress], Split]
    about: str
    place: str | None = None
    default: str | None = None

    def spelling(self, name: str) -> str:
        """Return how `name` is written: `digits`, `mnist:FOLDER` or `fashion-mnist[:FOLDER]`."""
        if self.place is None:
            return name
        return f"{name}:{self.place}" if self.default is None else f"{name}[:{self.place}]"


def in_one_size(load: Callable[[Path], Split]) -> Callable[[str, Size | None, OnProgress], Split]:
    """Return a `Source.load` for data of one size in memory, which `load` reads from a folder: it is resized."""
    return lambda place, size, _: resized(load(_expanded(place)), size)


def _load_folder(place: str, size: Size | None, on_progress: OnProgress) -> Split:
    return folders.load_folder(_expanded(place), size, on_progress)


def _load_shapes(place: str, size: Size | None, on_progress: OnProgress) -> Split:
    if not place.isascii() or not place.isdigit() or int(place) < 5:
        raise DataError(f"shapes:{place} lacks a number of at least 5; write shapes:5000 for 5,000 training images")
    return shapes.load_shapes(size or (32, 32), int(place), int(place) // 5, on_progress=on_progress)


SOURCES = {
    "digits": Source(in_one_size(lambda _: digits.load()), "1,797 handwritten digits, 8x8, part of the package"),
    "mnist": Source(in_one_size(mnist.load_mnist), "70,000 handwritten digits, 28x28", "FOLDER"),
    "fashion-mnist": Source(
        in_one_size(mnist.load_fashion_mnist), "70,000 pieces of clothing, 28x28", "FOLDER", mnist.DEBIAN_FASHION_MNIST
    ),
    "cifar10": Source(
        in_one_size(cifar.load_cifar10),
        "60,000 photographs, 32x32, 10 classes",
        "FOLDER",
        str(registry.home("cifar10")),
    ),
    "cifar100": Source(
        in_one_size(cifar.load_cifar100),
        "60,000 photographs, 32x32, 100 classes",
        "FOLDER",
        str(registry.home("cifar100")),
    ),
    "folder": Source(_load_folder, "image files of your own, a sub-folder a class", "PATH"),
    "shapes": Source(
        _load_shapes, "generated coloured shapes in 8 classes, 32x32 unless told, N to train on", "N", "5000"
    ),
}


def load(spec: str, size: int | Size | None = None, on_progress: OnProgress = silent) -> Split:
    """Load the data set that `spec` names: `digits`, `mnist:FOLDER`, `folder:PATH`, `shapes[:N]`, ...

    Parameters
    ----------
    size : (Y, X), or one number for both; images are resized until they cover it and cropped in the centre.  None:
        the images' own.
    on_progress : called with the images done and all images, by data sets that take a while.

    Raises
    ------
    DataError : the name is unknown, a place is missing or given in vain, or the files are missing or broken.
    ValueError : a size below 1.
    """
    pair = (size, size) if isinstance(size, int) else size
    if pair is not None and min(pair) < 1:
        raise ValueError(f"size must be at least 1, not {size}; None keeps the images' own")
    name, colon, place = spec.partition(":")
    source = SOURCES.get(name)
    if source is None:
        known = ", ".join(source.spelling(name) for name, source in SOURCES.items())
        raise DataError(f"no data set is called {name!r}; choose one of {known}")
    if source.place is None:
        if colon:
            raise DataError(f"{name} takes nothing after a colon, got {spec!r}; write {name}")
        return source.load("", pair, on_progress)
    if not place and (colon or source.default is None):
        raise DataError(f"{spec!r} lacks its {source.place.lower()}; write {name}:{source.place}")
    return source.load(place or source.default or "", pair, on_progress)


def _expanded(place: str) -> Path:  # the shell leaves the ~ of mnist:~/data to us
    try:
        return Path(place).expanduser()
    except RuntimeError:  # ~ of a user who does not exist: the loader will say that there is no such folder
        return Path(place)
