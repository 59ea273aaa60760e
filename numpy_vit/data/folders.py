"""A folder of image files with one sub-folder a class.

    photos/train/cat/1.jpg          photos/cat/1.jpg
    photos/train/dog/2.png    or    photos/dog/2.png
    photos/test/cat/3.jpg           photos/dog/more/3.webp

On the left the folder says which part is for testing (test, val, validation or valid); on the right every fifth file
of each class, sorted by name, is for testing.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from numpy_vit.data.dataset import MOST_IN_MEMORY, ImageSet, Split
from numpy_vit.data.image_files import upright_size
from numpy_vit.data.streamed import THREADS, OnProgress, StreamedDataset, reason, silent
from numpy_vit.errors import DataError

ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff")
TRAIN, TESTS = "train", ("test", "val", "validation", "valid")
HELD_OUT = 5  # without a folder for it, one file in five is for testing
_PIECE = 1024  # files between two reports of progress
_SHOWN = 5  # files that a message names; it counts the rest


def load_folder(
    folder: str | os.PathLike[str],
    size: tuple[int, int] | None = None,
    on_progress: OnProgress = silent,
    most_in_memory: int = MOST_IN_MEMORY,
) -> Split:
    """Load a folder of image files: into memory where they fit, else as data sets that decode what is taken.

    Files count by their ending (ENDINGS, in any case); hidden ones and others do not.  Folders inside a class are
    searched, too, unless they are links.  Broken files are left out and named in `skipped`.

    Parameters
    ----------
    folder : holds train and test with the classes' folders, or the classes' folders themselves.
    size : (Y, X) to resize and crop to; None where all images have one size.
    on_progress : called with the files done and all files, from nothing to all once for each reading of them.
    most_in_memory : bytes of decoded images; with more, they stay on disk.

    Returns
    -------
    Split : RGB images (n, 3, Y, X), turned upright, and the folders' sorted names as class names.

    Raises
    ------
    DataError : no folder, no classes, a class without a readable image, different classes in the two parts, nothing
        to test, or images of different sizes without `size`.
    """
    root = Path(folder)
    parts = _parts(root)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow's, of odd files: each becomes an image or is named in `skipped`
        resize = size is not None
        if size is None or 3 * size[0] * size[1] * _count(parts) > most_in_memory:
            parts, size = _checked(root, parts, size, on_progress)
        streamed = [_streamed(part, size, resize) for part in parts]
        total, done = _count(parts), 0
        made: list[ImageSet] = []
        for part in streamed:
            few = 3 * size[0] * size[1] * total <= most_in_memory
            made.append(part.decoded(_shifted(on_progress, done, total)) if few else part)
            done += len(part)
    # Where every fifth file is for testing, a class of four files has none.
    for images in made if parts[0].root != parts[1].root else made[:1]:
        _require_every_class(images, root)
    return Split(*made)


def describe_skipped(skipped: Sequence[str]) -> str:
    """Return a line that counts the files left out and names the first five; "" where there are none."""
    if not skipped:
        return ""
    files = "1 file" if len(skipped) == 1 else f"{len(skipped):,} files"
    more = "" if len(skipped) <= _SHOWN else f"; and {len(skipped) - _SHOWN:,} more"
    return f"{files} left out: {'; '.join(skipped[:_SHOWN])}{more}"


@dataclass(frozen=True)
class _Part:
    """A part's files before any is opened: paths relative to `root`, and the class of each."""

    name: str
    root: Path
    class_names: tuple[str, ...]
    paths: tuple[str, ...]
    labels: tuple[int, ...]
    skipped: tuple[str, ...] = ()

    def only(self, kept: Sequence[int]) -> _Part:
        return replace(self, paths=tuple(self.paths[i] for i in kept), labels=tuple(self.labels[i] for i in kept))


def _count(parts: Sequence[_Part]) -> int:
    return sum(len(part.paths) for part in parts)


def _parts(folder: Path) -> list[_Part]:
    if not folder.is_dir():
        raise DataError(f"no folder {folder}: it has to hold one sub-folder of images a class")
    inside = _folders(folder)
    test = next((name for name in TESTS if name in inside), None)
    if TRAIN in inside and test is not None:
        train, held_out = (_part(folder / name, f"{folder.name} {name}") for name in (TRAIN, test))
        if train.class_names != held_out.class_names:
            differing = sorted({*train.class_names} ^ {*held_out.class_names})
            raise DataError(
                f"{folder}: {TRAIN} and {test} have different classes: {', '.join(differing[:_SHOWN])} "
                f"{'is' if len(differing) == 1 else 'are'} in one of them only; give both the same sub-folders"
            )
        return [train, held_out]
    if inside == [TRAIN]:
        raise DataError(
            f"{folder} has {TRAIN} but none of {', '.join(TESTS)}: add one, or name {folder / TRAIN} itself to have "
            "every fifth file held out"
        )
    whole = _part(folder, folder.name)
    places = np.concatenate([np.arange(count) for count in np.bincount(whole.labels, minlength=len(inside))])
    held = places % HELD_OUT == HELD_OUT - 1
    if not held.any():
        raise DataError(f"{folder}: no class has {HELD_OUT} images, and every fifth is for testing; add some")
    return [
        replace(whole.only(np.flatnonzero(~held).tolist()), name=f"{folder.name} train (without every fifth file)"),
        replace(whole.only(np.flatnonzero(held).tolist()), name=f"{folder.name} test (every fifth file)"),
    ]


def _part(root: Path, name: str) -> _Part:
    classes = _folders(root)
    if not classes:
        raise DataError(f"{root} has no sub-folders: it has to hold one sub-folder of images a class")
    files = [_files(root, kind) for kind in classes]
    for kind, found in zip(classes, files, strict=True):
        if not found:
            raise DataError(f"{root / kind} has no image ({', '.join(ENDINGS)}): add some or remove the folder")
    labels = [label for label, found in enumerate(files) for _ in found]
    return _Part(name, root, tuple(classes), tuple(path for found in files for path in found), tuple(labels))


def _folders(root: Path) -> list[str]:
    return sorted(entry.name for entry in root.iterdir() if entry.is_dir() and not entry.name.startswith("."))


def _files(root: Path, kind: str) -> list[str]:  # the sorted paths of a class, relative to root, with "/"
    found = []
    for folder, inside, names in os.walk(root / kind):
        inside[:] = [name for name in inside if not name.startswith(".")]
        here = Path(folder).relative_to(root).as_posix()
        kept = [name for name in names if name.lower().endswith(ENDINGS) and not name.startswith(".")]
        found += [f"{here}/{name}" for name in kept]
    return sorted(found)


def _checked(
    root: Path, parts: Sequence[_Part], size: tuple[int, int] | None, on_progress: OnProgress
) -> tuple[list[_Part], tuple[int, int]]:
    """Open every file without decoding it: leave the broken ones out, and find the size that all have."""
    total, done = _count(parts), 0
    readable: list[_Part] = []
    sizes: set[tuple[int, int]] = set()
    for part in parts:
        found = _sizes(part, _shifted(on_progress, done, total))
        done += len(part.paths)
        kept = [i for i, one in enumerate(found) if not isinstance(one, str)]
        readable.append(replace(part.only(kept), skipped=tuple(one for one in found if isinstance(one, str))))
        sizes |= {one for one in found if not isinstance(one, str)}
        if not kept:
            raise DataError(f"{part.root}: none of its {len(found):,} images can be read; {readable[-1].skipped[0]}")
    if size is None and len(sizes) > 1:
        least, *_, greatest = (f"{x}x{y}" for y, x in sorted(sizes, key=lambda yx: (yx[0] * yx[1], yx)))
        raise DataError(f"{root}: images differ in size (from {least} to {greatest}): say --image-size N")
    return readable, size or sizes.pop()


def _sizes(part: _Part, report: OnProgress) -> list[tuple[int, int] | str]:
    """Return the (Y, X) of each file, or what is wrong with it."""

    def size(path: str) -> tuple[int, int] | str:
        try:
            return upright_size(part.root / path)
        except DataError as error:
            return reason(part.root, path, error)

    found: list[tuple[int, int] | str] = []
    with ThreadPoolExecutor(THREADS) as pool:
        for start in range(0, len(part.paths), _PIECE):
            found += pool.map(size, part.paths[start : start + _PIECE])
            report(len(found), len(part.paths))
    return found


def _streamed(part: _Part, size: tuple[int, int], resize: bool) -> StreamedDataset:
    bytes_of = np.array([_bytes(part.root / path) for path in part.paths], np.int64)
    labels = np.array(part.labels, np.int64)
    return StreamedDataset(
        part.name, part.root, part.paths, bytes_of, labels, part.class_names, size, part.skipped, resize
    )


def _bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # a link to nowhere, which decoding will name
        return 0


def _shifted(on_progress: OnProgress, before: int, total: int) -> OnProgress:
    return lambda done, _: on_progress(before + done, total)


def _require_every_class(images: ImageSet, root: Path) -> None:
    counts = np.bincount(images.labels, minlength=len(images.class_names))
    for name, count in zip(images.class_names, counts.tolist(), strict=True):
        if count == 0:
            raise DataError(
                f"{root}: no image of class {name} in {images.name} can be read; {describe_skipped(images.skipped)}"
            )
