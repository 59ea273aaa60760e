"""Which images a run is about: a data set, their size, and how many of each part."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from numpy_vit.data.dataset import Split
from numpy_vit.data.sources import load
from numpy_vit.data.subset import balanced


@dataclass(frozen=True)
class Selection:
    """A data set as it is spelled on the command line, and what is taken of it.

    Parameters
    ----------
    name : such as "digits" or "folder:photos"
    image_size : (Y, X) to resize to; None for the images' own size
    train_images, test_images : how many of each part, as many of each class as there can be; None for all
    seed : of that choice
    """

    name: str
    image_size: tuple[int, int] | None = None
    train_images: int | None = None
    test_images: int | None = None
    seed: int = 0

    def load(self, on_progress: Callable[[int, int], None] = lambda done, total: None) -> Split:
        """Return the images.

        Raises
        ------
        DataError : the data set is unknown, missing or broken, or has fewer images than are asked for.
        """
        whole = load(self.name, self.image_size, on_progress)
        train = whole.train if self.train_images is None else balanced(whole.train, self.train_images, self.seed)
        test = whole.test if self.test_images is None else balanced(whole.test, self.test_images, self.seed)
        return Split(train, test)

    def to_json(self) -> dict[str, Any]:
        """Return a plain dict for JSON, without what is not chosen."""
        return {key: value for key, value in asdict(self).items() if value is not None}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Selection:
        """Restore what `to_json` gave; keys of others are left out."""
        known = {field.name for field in fields(cls)}
        values = {key: value for key, value in stored.items() if key in known}
        if "image_size" in values:
            values["image_size"] = tuple(values["image_size"])
        return cls(**values)
