"""The data sets by name: what `--data` understands.

A specification is a name, or a name and its place: `digits`, `fashion-mnist`, `mnist:FOLDER`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from numpy_vit.data import digits, mnist
from numpy_vit.data.dataset import Split
from numpy_vit.errors import DataError


@dataclass(frozen=True)
class Source:
    """A row of the table: how to load a data set and what stands after its colon.

    Parameters
    ----------
    load : called with the place.
    about : one line for people.
    place : what the place is, "FOLDER"; None where there is none.
    default : the place where none is given; None where it must be.
    """

    load: Callable[[Path], Split]
    about: str
    place: str | None = None
    default: str | None = None

    def spelling(self, name: str) -> str:
        """Return how `name` is written: `digits`, `mnist:FOLDER` or `fashion-mnist[:FOLDER]`."""
        if self.place is None:
            return name
        return f"{name}:{self.place}" if self.default is None else f"{name}[:{self.place}]"


SOURCES = {
    "digits": Source(lambda _: digits.load(), "1,797 handwritten digits, 8x8, part of the package"),
    "mnist": Source(mnist.load_mnist, "70,000 handwritten digits, 28x28", "FOLDER"),
    "fashion-mnist": Source(
        mnist.load_fashion_mnist, "70,000 pieces of clothing, 28x28", "FOLDER", mnist.DEBIAN_FASHION_MNIST
    ),
}


def load(spec: str) -> Split:
    """Load the data set that `spec` names: `digits`, `mnist:FOLDER`, `fashion-mnist[:FOLDER]`.

    Raises
    ------
    DataError : the name is unknown, a place is missing or given in vain, or the files are missing or broken.
    """
    name, colon, place = spec.partition(":")
    source = SOURCES.get(name)
    if source is None:
        known = ", ".join(source.spelling(name) for name, source in SOURCES.items())
        raise DataError(f"no data set is called {name!r}; choose one of {known}")
    if source.place is None:
        if colon:
            raise DataError(f"{name} takes nothing after a colon, got {spec!r}; write {name}")
        return source.load(Path())
    if not place and (colon or source.default is None):
        raise DataError(f"{spec!r} lacks its {source.place.lower()}; write {name}:{source.place}")
    return source.load(_expanded(place or source.default or ""))


def _expanded(place: str) -> Path:  # the shell leaves the ~ of mnist:~/data to us
    try:
        return Path(place).expanduser()
    except RuntimeError:  # ~ of a user who does not exist: the loader will say that there is no such folder
        return Path(place)
