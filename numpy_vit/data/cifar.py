"""CIFAR-10 and CIFAR-100 from their Python or binary distribution, extracted or not.

Binary: rows of one label byte (CIFAR-100: the coarse, then the fine label) and 3,072 bytes, red, green and blue of
32x32 pixels each.  Python: pickled dicts with the same rows under "data", and the labels in a list.

Source: A. Krizhevsky, Learning multiple layers of features from tiny images, 2009, and
https://www.cs.toronto.edu/~kriz/cifar.html.
"""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from numpy_vit.data.cifar_pickles import read_pickle, rows_of, texts_of
from numpy_vit.data.dataset import Dataset, Split
from numpy_vit.data.registry import home
from numpy_vit.errors import DataError
from numpy_vit.tree import Array

SHAPE = 3, 32, 32
PIXELS = 3 * 32 * 32
ROW_LIMIT = 2 * PIXELS + 128  # bytes of a row in the longest spelling: Python 3's in protocol 2 doubles each above 127
NAMES_LIMIT = 1 << 16
ROWS = 60_000  # of a whole release
MAX_MEMBERS = 64  # of an archive; the published ones have 9 at most


@dataclass(frozen=True)
class _Layout:
    """A distribution: its archive, the folder in it, and the files that are read."""

    archive: str
    folder: str
    train: tuple[str, ...]
    test: str
    names: str

    @property
    def files(self) -> tuple[str, ...]:
        return (*self.train, self.test, self.names)


@dataclass(frozen=True)
class _Release:
    """What the two distributions of a data set have in common; labels and names are those of the fine classes."""

    name: str
    classes: int
    batch_rows: int  # of the largest batch
    labels: str
    label_names: str
    label_bytes: int
    pickled: _Layout
    binary: _Layout

    @property
    def remedy(self) -> str:
        return f"get it again with numpy-vit data fetch {self.name}"


_TEN = [f"data_batch_{number}" for number in range(1, 6)]
_CIFAR10 = _Release(
    "cifar10", 10, 10_000, "labels", "label_names", 1,
    _Layout("cifar-10-python.tar.gz", "cifar-10-batches-py", (*_TEN,), "test_batch", "batches.meta"),
    _Layout(
        "cifar-10-binary.tar.gz", "cifar-10-batches-bin", (*(f"{name}.bin" for name in _TEN),), "test_batch.bin",
        "batches.meta.txt",
    ),
)  # fmt: skip
_CIFAR100 = _Release(
    "cifar100", 100, 50_000, "fine_labels", "fine_label_names", 2,
    _Layout("cifar-100-python.tar.gz", "cifar-100-python", ("train",), "test", "meta"),
    _Layout("cifar-100-binary.tar.gz", "cifar-100-binary", ("train.bin",), "test.bin", "fine_label_names.txt"),
)  # fmt: skip


@dataclass(frozen=True)
class _File:
    """A file's content, and what messages call it."""

    layout: _Layout
    name: str
    where: str
    content: bytes


def load_cifar10(folder: str | os.PathLike[str] | None = None) -> Split:
    """Load CIFAR-10: 50,000 photographs to train on and 10,000 to test, (n, 3, 32, 32), 10 classes.

    Nothing of the files is executed, and an archive is read in memory.

    Parameters
    ----------
    folder : holds the extracted batches, or is the folder above them; or holds the .tar.gz, or is the archive
        itself.  Default: where `numpy-vit data fetch cifar10` puts it.

    Raises
    ------
    DataError : something is missing or broken; the text says where to get it.
    """
    return _load(_CIFAR10, home("cifar10") if folder is None else Path(folder))


def load_cifar100(folder: str | os.PathLike[str] | None = None) -> Split:
    """Load CIFAR-100: 50,000 photographs to train on and 10,000 to test, (n, 3, 32, 32), the 100 fine classes.

    Parameters
    ----------
    folder : as for `load_cifar10`.

    Raises
    ------
    DataError : something is missing or broken; the text says where to get it.
    """
    return _load(_CIFAR100, home("cifar100") if folder is None else Path(folder))


def _load(release: _Release, place: Path) -> Split:
    batches: dict[str, tuple[Array, Array]] = {}  # file name -> rows (n, 3072), labels (n,)
    names: dict[str, tuple[str, ...]] = {}
    for file in _files(release, place):
        if file.name == file.layout.names:
            names[file.name] = _class_names(file, release)
        else:
            batches[file.name] = _batch(file, release)
    found = batches.keys() | names.keys()
    layout = release.pickled if found & set(release.pickled.files) else release.binary
    if missing := [name for name in layout.files if name not in found]:
        raise DataError(f"{place} lacks {', '.join(missing)} of {layout.folder}; {release.remedy}")
    parts = []
    for part, files in (("train", layout.train), ("test", (layout.test,))):
        images = np.concatenate([batches[name][0] for name in files]).reshape(-1, *SHAPE)
        labels = np.concatenate([batches.pop(name)[1] for name in files])
        parts.append(Dataset(f"{release.name} {part}", images, labels, names[layout.names]))
    return Split(*parts)


def _files(release: _Release, place: Path) -> Iterator[_File]:
    """Read one file after another from what `place` turns out to be."""
    if place.is_file():
        return _from_archive(release, place)
    for layout in (release.pickled, release.binary):
        for folder in (place, place / layout.folder):
            if any((folder / name).is_file() for name in layout.files):
                return _from_folder(release, layout, folder)
    for layout in (release.pickled, release.binary):
        if (place / layout.archive).is_file():
            return _from_archive(release, place / layout.archive)
    wanted = [name for layout in (release.pickled, release.binary) for name in (layout.archive, layout.folder)]
    raise DataError(
        f"{place} has none of {', '.join(wanted)}: fetch it with numpy-vit data fetch {release.name}, "
        f"or say where it is: {release.name}:FOLDER"
    )


def _from_folder(release: _Release, layout: _Layout, folder: Path) -> Iterator[_File]:
    for name in layout.files:
        path = folder / name
        if not path.is_file():
            continue  # `_load` names all that are missing
        limit = _limit(release, layout, name)
        try:
            with path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                content = file.read(limit) if size <= limit else b""
        except OSError as error:
            raise DataError(f"{path} cannot be read ({error.strerror}); check path and permissions") from error
        _check_size(size, limit, str(path), release)
        yield _File(layout, name, str(path), content)


def _from_archive(release: _Release, path: Path) -> Iterator[_File]:
    """Read the members that are wanted, in the archive's order; nothing is written to the disk."""
    layouts = (release.pickled, release.binary)
    wanted = {f"{layout.folder}/{name}": (layout, name) for layout in layouts for name in layout.files}
    found = False
    try:
        with path.open("rb") as file:
            compressed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            stream = _Bounded(gzip.GzipFile(fileobj=file) if compressed else file, ROWS * ROW_LIMIT, path)
            with tarfile.open(fileobj=stream, mode="r|") as archive:
                for number, member in enumerate(archive):
                    if number == MAX_MEMBERS:
                        raise DataError(f"{path} has more than {MAX_MEMBERS} members; {release.remedy}")
                    layout, name = wanted.get(member.name.removeprefix("./"), (None, ""))
                    if layout is None or not member.isreg() or member.issparse():
                        continue
                    where = f"{path} ({member.name})"
                    _check_size(member.size, _limit(release, layout, name), where, release)
                    content = archive.extractfile(member)
                    yield _File(layout, name, where, content.read() if content else b"")
                    found = True
            while stream.read(1 << 20):
                pass  # to gzip's checksum, which stands at the end
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error, ValueError, RecursionError) as error:
        raise DataError(f"{path} is a damaged archive ({error}); {release.remedy}") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}); check path and permissions") from error
    if not found:
        raise DataError(f"{path} has no files of {release.name}; {release.remedy}")


class _Bounded(io.RawIOBase):
    """A stream out of which no more comes than a release has: a small file can unpack to any size."""

    def __init__(self, stream: BinaryIO | gzip.GzipFile, limit: int, path: Path) -> None:
        super().__init__()
        self._stream, self._left, self._path = stream, limit, path

    def read(self, count: int = -1) -> bytes:
        """Return the next bytes."""
        data = self._stream.read(count)
        self._left -= len(data)
        if self._left < 0:
            raise DataError(f"{self._path} unpacks to more than CIFAR has; get it again from its publisher")
        return data


def _limit(release: _Release, layout: _Layout, name: str) -> int:
    return NAMES_LIMIT if name == layout.names else release.batch_rows * ROW_LIMIT


def _check_size(size: int, limit: int, where: str, release: _Release) -> None:
    if size > limit:
        raise DataError(f"{where} has {size} bytes, more than the {limit} that it can need; {release.remedy}")


def _batch(file: _File, release: _Release) -> tuple[Array, Array]:  # rows (n, 3072) uint8, labels (n,) int64
    return (_pickled_batch if file.layout is release.pickled else _binary_batch)(file, release)


def _pickled_batch(file: _File, release: _Release) -> tuple[Array, Array]:
    found = read_pickle(file.content, file.where, release.remedy)
    rows = rows_of(found.get("data"), PIXELS, file.where, release.remedy)
    labels = found.get(release.labels)
    if not isinstance(labels, list) or len(labels) != len(rows):
        raise DataError(f"{file.where} has no list of {len(rows)} numbers under {release.labels!r}; {release.remedy}")
    for label in labels:
        if type(label) is not int or not 0 <= label < release.classes:
            raise _wrong_label(label, file, release)
    return rows, np.array(labels, np.int64)


def _binary_batch(file: _File, release: _Release) -> tuple[Array, Array]:
    width = release.label_bytes + PIXELS
    if not file.content or len(file.content) % width:
        raise DataError(
            f"{file.where} has {len(file.content)} bytes, not one or more rows of {width} "
            f"({release.label_bytes} of labels, {PIXELS} of pixels); {release.remedy}"
        )
    table = np.frombuffer(file.content, np.uint8).reshape(-1, width)
    labels = table[:, release.label_bytes - 1].astype(np.int64)
    if labels.max() >= release.classes:
        raise _wrong_label(int(labels.max()), file, release)
    return table[:, release.label_bytes :], labels


def _wrong_label(label: object, file: _File, release: _Release) -> DataError:
    shown = f"the label {label}" if type(label) is int and abs(label) < 2**63 else "a label that is no such number"
    return DataError(f"{file.where} has {shown}; {release.name} has 0 to {release.classes - 1}; {release.remedy}")


def _class_names(file: _File, release: _Release) -> tuple[str, ...]:
    if file.layout is release.pickled:
        found = read_pickle(file.content, file.where, release.remedy)
        names = texts_of(found.get(release.label_names), file.where, release.remedy)
    else:
        names = file.content.decode("latin1").split()
    if len(names) != release.classes or not all(name.isprintable() for name in names):
        raise DataError(f"{file.where} has not {release.classes} printable names of classes; {release.remedy}")
    return tuple(names)
