"""The names of classes: ImageNet's thousand, a file of the user's, or what lies beside a checkpoint."""

from __future__ import annotations

import os
from importlib import resources
from pathlib import Path

from numpy_vit.data.published import read_json
from numpy_vit.errors import DataError


def imagenet_names() -> list[str]:
    """Return the 1,000 names of ImageNet-1k in index order, each with all of WordNet's words for it.

    Source: Russakovsky et al. 2015; the order is that of the sorted WordNet numbers, which every framework uses.
    """
    return resources.files(__package__).joinpath("imagenet_classes.txt").read_text("utf-8").splitlines()


def read_names(path: str | os.PathLike[str], count: int) -> list[str]:
    """Read a text file of `count` lines, one name each, in index order; blank lines at the end do not count.

    Raises
    ------
    DataError : the file cannot be read, or has another number of names.
    """
    try:
        names = Path(path).read_text("utf-8-sig").rstrip().splitlines()
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read as a list of names: {error}") from error
    if len(names) != count:
        raise DataError(f"{path} has {len(names)} names and the model {count} classes: give one name a line")
    return [name.strip() for name in names]


def names_beside(path: str | os.PathLike[str], count: int) -> list[str] | None:
    """Return the names in the config.json beside a checkpoint (transformers' id2label, timm's label_names), if any.

    Raises
    ------
    DataError : the file is broken.
    """
    file = Path(path).parent / "config.json"
    if not file.is_file():
        return None
    stored = read_json(file)
    by_number = stored.get("id2label")
    if isinstance(by_number, dict) and set(by_number) == {str(i) for i in range(count)}:
        names = [str(by_number[str(i)]) for i in range(count)]
        # transformers writes LABEL_0, LABEL_1 ... where nobody gave names
        return None if names == [f"LABEL_{i}" for i in range(count)] else names
    listed = stored.get("label_names")
    if isinstance(listed, list) and len(listed) == count:
        descriptions = stored.get("label_descriptions")
        described = descriptions if isinstance(descriptions, dict) else {}
        return [str(described.get(name, name)) for name in listed]
    return None
