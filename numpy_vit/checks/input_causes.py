"""What was done to the pictures before the model saw them, where the reference holds them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from numpy_vit.checks.comparison import Cause
from numpy_vit.checks.precision import PRECISIONS, distance, largest
from numpy_vit.checks.reference import Reference
from numpy_vit.tree import Array

# name: mean, std of the channels in 0 ... 1
STATISTICS: dict[str, tuple[Sequence[float], Sequence[float]]] = {
    "0.5 and 0.5": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "ImageNet's": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "CLIP's": ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)),
    "0 and 1, none": ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
}
_PIXEL = 1.01 / 255  # Pillow rounds to whole pixel values: resizing elsewhere may differ by one of them


@dataclass(frozen=True)
class Preprocessing:
    """What the checkpoint's pictures are supposed to go through.

    Parameters
    ----------
    mean, std : of the channels, for values in 0 ... 1
    pictures : (B, C, Y, X) in 0 ... 255 after resizing and cropping, by the rule's name; the first is right
    """

    mean: Sequence[float]
    std: Sequence[float]
    pictures: Mapping[str, Array]


@dataclass(frozen=True)
class _Way:
    """One way from pictures to the model's input."""

    rule: str
    statistics: str
    reversed: bool
    factor: float
    images: Array
    tolerance: float

    def words(self) -> str:
        """Return the way in words."""
        rescaled = {1 / 255: "", 1.0: ", not divided by 255", 1 / 255**2: ", divided by 255 twice"}[self.factor]
        order = "BGR" if self.reversed else "RGB"
        return f"{order}, mean and std {self.statistics}{rescaled}{f', resized by {self.rule}' if self.rule else ''}"


def pictures_of(reference: Reference) -> dict[str, Array]:
    """Return the raw pictures where they have the size of the images already; otherwise nothing."""
    if reference.raw is None:
        return {}
    pictures = np.moveaxis(reference.raw, -1, 1).astype(np.float64)
    return {"": pictures} if pictures.shape == reference.images.shape else {}


def explain(reference: Reference, expected: Preprocessing | None) -> tuple[Cause | None, str]:
    """Compare the images with what preprocessing makes of the raw pictures.

    Returns
    -------
    cause : what was done differently; None where nothing was, or nothing is known
    note : what was done, in words; "" where there are no raw pictures
    """
    pictures = expected.pictures if expected else pictures_of(reference)
    if not pictures:
        unknown = "the raw pictures have another size than the images: how they were resized was not checked"
        return None, "" if reference.raw is None else unknown
    ways = list(_ways(reference, expected, pictures))
    gaps = [distance(way.images, reference.images) for way in ways]
    if expected and gaps[0] <= ways[0].tolerance:
        return None, f"the images are the pictures as they should be: {ways[0].words()}"
    fitting = [i for i, (way, gap) in enumerate(zip(ways, gaps, strict=True)) if gap <= way.tolerance]
    found = min(fitting, key=lambda i: gaps[i] / ways[i].tolerance, default=None)
    if found is None:
        off = f"the usual one is off by {gaps[0]:.1e}"
        text = f"The images come from the raw pictures by none of {len(ways)} ways to preprocess them; {off}."
        return Cause("images", "", gaps[0], None, text), ""
    if expected is None:
        return None, f"the images are the raw pictures as {ways[found].words()}"
    text = (
        f"With {ways[found].words()} the difference at images falls from {gaps[0]:.1e} to {gaps[found]:.1e}: "
        f"the reference preprocesses so; the checkpoint wants {ways[0].words()}."
    )
    return Cause("images", _name(ways[0], ways[found]), gaps[0], gaps[found], text), ""


def _name(right: _Way, found: _Way) -> str:
    names = {
        "RGB and BGR": right.reversed != found.reversed,
        "mean and std": right.statistics != found.statistics,
        "1/255": right.factor != found.factor,
        "resizing": right.rule != found.rule,
    }
    return " and ".join(name for name, differs in names.items() if differs)


def _ways(reference: Reference, expected: Preprocessing | None, pictures: Mapping[str, Array]) -> Iterator[_Way]:
    """Yield every way, the expected one first."""
    statistics = dict(STATISTICS)
    if expected:
        wanted = (tuple(expected.mean), tuple(expected.std))
        same = next((name for name, pair in STATISTICS.items() if pair == wanted), "the checkpoint's")
        statistics = {same: wanted} | statistics
    channels = reference.images.shape[1]
    for (rule, picture), (name, (mean, std)) in itertools.product(pictures.items(), statistics.items()):
        if len(mean) not in (1, channels):
            mean, std = (sum(mean) / len(mean),), (sum(std) / len(std),)
        for factor, reverse in itertools.product((1 / 255, 1.0, 1 / 255**2), (False, True)):
            turned = picture[:, ::-1] if reverse else picture
            columns = (np.reshape(values, (-1, 1, 1)) for values in (mean, std))
            shift, divisor = columns
            images = (turned * factor - shift) / divisor
            rounding = 4 * PRECISIONS[reference.dtype] * max(largest(images), 1.0)
            pixel = _PIXEL * 255 * factor / min(std) if rule else 0.0
            yield _Way(rule, name, reverse, factor, images, rounding + pixel)
