"""What a model said of a test part: the counts, and which images to show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from numpy_vit.data.dataset import ImageSet
from numpy_vit.tree import Array
from numpy_vit.views.likeliest import likeliest
from numpy_vit.views.report.markup import escape, opening, paragraph, percent, picture_url, tag
from numpy_vit.views.tiles import drawn_size, resized

SIDE = 160  # pixels that the longer side of a sample takes at most


@dataclass(frozen=True)
class Answers:
    """The model's answers.

    Parameters
    ----------
    data : what the images are called, "digits test"
    logits : (n, K)
    labels : (n,)
    class_names : K names
    """

    data: str
    logits: Array
    labels: Array
    class_names: Sequence[str]

    @property
    def predicted(self) -> Array:
        """(n,), the class of the highest logit."""
        classes: Array = self.logits.argmax(axis=1)
        return classes

    @property
    def counts(self) -> Array:
        """(K, K), counts[i, j]: how many images of class i were taken for class j."""
        K = len(self.class_names)
        counts = np.zeros((K, K), np.int64)
        np.add.at(counts, (self.labels, self.predicted), 1)
        return counts

    @property
    def accuracy(self) -> float:
        """The share of images that were recognised."""
        return float((self.predicted == self.labels).mean())

    @property
    def mistaken(self) -> int:
        """How many images were not recognised."""
        return int((self.predicted != self.labels).sum())

    def mistakes(self, most: int) -> list[int]:
        """Return the mistakes of which the model was surest, the surest first."""
        wrong = np.flatnonzero(self.predicted != self.labels)
        order = np.argsort(-self._sureness()[wrong], kind="stable")
        return [int(i) for i in wrong[order][:most]]

    def hits(self, most: int) -> list[int]:
        """Return images that were recognised: the first of each class, then the second of each, and so on."""
        right = np.flatnonzero(self.predicted == self.labels)
        turn = np.zeros(len(right), np.int64)  # the how-manieth of its class
        for k in np.unique(self.labels[right]):
            of_class = self.labels[right] == k
            turn[of_class] = np.arange(of_class.sum())
        order = np.lexsort((self.labels[right], turn))
        return [int(i) for i in right[order][:most]]

    def _sureness(self) -> Array:
        """(n,), the share of the predicted class."""
        wide = self.logits.astype(np.float64)
        shares: Array = 1 / np.exp(wide - wide.max(axis=1, keepdims=True)).sum(axis=1)
        return shares


@dataclass(frozen=True)
class Sample:
    """A test image as it is shown: its number in the test part, and its picture (Y, X, 3) of bytes."""

    number: int
    picture: Array


def pictures_of(part: ImageSet, numbers: Sequence[int]) -> dict[int, Array]:
    """Return images of a test part as (Y, X, 3) bytes, by their numbers."""
    if not numbers:
        return {}
    taken = part.take(numbers).images
    colours = np.repeat(taken, 3, axis=1) if taken.shape[1] == 1 else taken
    return dict(zip(numbers, colours.transpose(0, 2, 3, 1), strict=True))


def samples(answers: Answers, right: Sequence[Sample], wrong: Sequence[Sample]) -> str:
    """Return the sample predictions: some that are right, and the surest mistakes."""
    mistaken, total = answers.mistaken, len(answers.labels)
    parts = []
    if wrong:
        parts += [tag("h3", "The surest mistakes"), _gallery(answers, wrong)]
    elif mistaken:
        counted = f"Mistakes: {mistaken:,} of {total:,} images, none of them shown here"
        parts.append(paragraph(f"{counted}: numpy-vit report shows the surest with --samples 2 or more."))
    else:
        parts.append(paragraph(f"All {total:,} images were recognised: there is no mistake to show."))
    if right:
        parts += [tag("h3", "Recognised"), _gallery(answers, right)]
    return "\n".join(parts)


def _gallery(answers: Answers, shown: Sequence[Sample]) -> str:
    return tag("ul", "\n".join(_figure(answers, sample) for sample in shown), class_="gallery")


def _figure(answers: Answers, sample: Sample) -> str:
    names, truth = answers.class_names, int(answers.labels[sample.number])
    top = likeliest(answers.logits[sample.number], min(3, len(names)))
    right = top[0][0] == truth
    height, width = sample.picture.shape[:2]
    small = max(height, width) < SIDE
    picture = sample.picture if small else np.asarray(resized(sample.picture, *drawn_size((height, width), SIDE)))
    said = f"test image {sample.number}: {names[truth]}"
    image = opening("img", src=picture_url(picture), alt=said, class_="small" if small else None)
    first, *others = [f"{names[i]} ({percent(share)})" for i, share in top]
    verdict = "" if right else tag("span", f"is {escape(names[truth])}", class_="wrong")
    rest = tag("small", escape(", ".join(others)))
    words = tag("b", escape(("✓ " if right else "✗ ") + first)) + verdict + rest
    return tag("li", tag("figure", image + tag("figcaption", words)))
