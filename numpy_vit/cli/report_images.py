"""The images of a report: those that are named, and the test part, its answers and samples."""

from __future__ import annotations

import argparse
import reprlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy_vit.cli.progress import Progress, reading
from numpy_vit.cli.usage import UsageError, cores, usage

if TYPE_CHECKING:
    from numpy_vit.data import Preprocessing
    from numpy_vit.data.dataset import ImageSet
    from numpy_vit.training.opened import Opened
    from numpy_vit.views.report.answers import Answers, Sample
    from numpy_vit.views.report.explorer import Offered


@dataclass
class Gathered:
    """What was found out with images.

    Parameters
    ----------
    names : what the whole page calls the classes
    missing : by section, what it lacks, or a remark on it
    notes : those of them that the terminal shows, too
    """

    names: list[str]
    offered: list[Offered] = field(default_factory=list)
    right: list[Sample] = field(default_factory=list)
    wrong: list[Sample] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    answers: Answers | None = None

    def remark(self, section: str, text: str) -> None:
        """Say something on a section, in the page and at the terminal."""
        self.missing[section] = " ".join([*filter(None, [self.missing.get(section)]), text])
        self.notes.append(text)


def gather(args: argparse.Namespace, opened: Opened, about: dict[str, Any], progress: Progress) -> Gathered:
    """Read the images that are named, and test the model.

    Parameters
    ----------
    about : what config.json says of the run; empty for a file by itself
    """
    from numpy_vit.cli import seen_image
    from numpy_vit.cli.predict import names_of
    from numpy_vit.data import Preprocessing
    from numpy_vit.errors import NumpyVitError
    from numpy_vit.training.opened import preprocessing_of
    from numpy_vit.views.report.explorer import Offered

    config = opened.config
    if args.labels and not config.num_classes:
        raise UsageError(f"--labels names the classes of a head, and {opened.path} has none: leave it out")
    names, named_by = names_of(opened, args.labels) if config.num_classes else ([], "unknown")
    found = Gathered(names)
    try:
        with usage():
            transform, _ = preprocessing_of(opened, args.preprocessing)
    except NumpyVitError as error:
        if args.images or args.data or args.preprocessing:
            raise
        return _without_images(found, str(error))
    for path in args.images:
        seen = seen_image.read(path, opened, transform)
        found.offered.append(Offered(Path(path).name, seen.pixels, seen.picture))
    preprocessing = Preprocessing(config.image, config.in_chans, transform.mean, transform.std)
    try:
        part = _test_part(args, opened, about, preprocessing, found, progress)
        if part is not None:
            _agree_on_names(found, part, named_by, bool(args.labels))
            _test(args, opened, part, preprocessing, found, progress)
    except NumpyVitError as error:
        if args.data:
            raise
        return _without_images(found, f"The test images are missing: {error}; name other data with --data SPEC")
    if part is None:
        lacks = "The file does not say what it was trained on: name data with --data SPEC."
        found.missing |= {"confusion": lacks, "samples": lacks}
    if not found.offered:
        more = "data with --data" if part is None else "ask for test images with --samples"
        found.missing["explorer"] = f"The explorer needs an image: name some with --images IMAGE, or {more}."
    return found


def _without_images(found: Gathered, why: str) -> Gathered:
    """Say it once for people at the terminal, and in every section that lacks its images."""
    found.notes.append(why)
    found.missing |= {"confusion": why, "samples": why}
    if not found.offered:
        found.missing["explorer"] = f"{why}. Images of your own come with --images IMAGE."
    return found


def _test_part(
    args: argparse.Namespace, opened: Opened, about: dict[str, Any], preprocessing: Preprocessing, found: Gathered,
    progress: Progress,
) -> ImageSet | None:  # fmt: skip
    """The images to test on: those of --data, of the run, or of the checkpoint; None where none is known."""
    from numpy_vit.data import load
    from numpy_vit.data.selection import Selection
    from numpy_vit.errors import DataError
    from numpy_vit.training.run_folder import fingerprint

    size, named = preprocessing.size, args.data or opened.extra.get("data")
    if about and not args.data:
        with usage():
            selection = Selection.from_json(about["data"])
        split = selection.load(reading(progress))
        if fingerprint(split) != about["data"].get("fingerprint"):
            found.remark("confusion", "These images are not those that the run began with: their fingerprint differs.")
    elif isinstance(named, str):
        split = load(named, size, reading(progress))
    else:
        return None
    progress.clear()
    part, classes = split.test, opened.config.num_classes
    preprocessing.check((len(part), *part.shape))
    if classes and classes != len(part.class_names):
        raise DataError(f"{part.name} has {len(part.class_names)} classes, {opened.path} {classes}: choose its data")
    return part


def _agree_on_names(found: Gathered, part: ImageSet, named_by: str, chosen: bool) -> None:
    """Take the data's names where the model has none of its own; where both have some, say that they differ.

    Names that people chose themselves, with --labels, need no remark.
    """
    theirs = list(part.class_names)
    if named_by.startswith("unknown"):
        found.names = theirs
    elif not chosen and found.names != theirs:
        said = f"The names of the classes are {named_by}; the data's own, in the same order: {reprlib.repr(theirs)}."
        found.remark("confusion", said)


def _test(
    args: argparse.Namespace, opened: Opened, part: ImageSet, preprocessing: Preprocessing, found: Gathered,
    progress: Progress,
) -> None:  # fmt: skip
    """Evaluate the test part, and choose its samples; of a model without a head, one image a class."""
    from itertools import zip_longest

    import numpy as np

    from numpy_vit.errors import CheckpointError
    from numpy_vit.training.evaluate import predict
    from numpy_vit.views.report.answers import Answers, Sample, pictures_of

    if not opened.config.num_classes:
        lacks = "This model has no head, it classifies nothing: numpy-vit probe tells what its features are worth."
        found.missing |= {"confusion": lacks, "samples": lacks}
        _, first = np.unique(part.labels, return_index=True)
        chosen = [int(i) for i in first[: args.samples]]
        pictures = pictures_of(part, chosen)
        _offer(found, part, preprocessing, chosen, pictures)
        return
    logits = predict(
        opened.model, opened.params, opened.config, part, preprocessing, args.workers or cores(),
        lambda done: progress.line(f"testing: {done:,} of {len(part):,} images"),
    )  # fmt: skip
    if not np.isfinite(logits).all():
        raise CheckpointError(f"{opened.path} gives logits that are not finite: look at it with numpy-vit inspect")
    found.answers = Answers(part.name, logits, part.labels, found.names)
    wrong = found.answers.mistakes(args.samples // 2)
    right = found.answers.hits(args.samples - len(wrong))
    chosen = [i for pair in zip_longest(right, wrong) for i in pair if i is not None]  # in turn
    pictures = pictures_of(part, chosen)
    found.right = [Sample(i, pictures[i]) for i in right]
    found.wrong = [Sample(i, pictures[i]) for i in wrong]
    _offer(found, part, preprocessing, chosen, pictures)


def _offer(
    found: Gathered, part: ImageSet, preprocessing: Preprocessing, chosen: list[int], pictures: dict[int, Any]
) -> None:
    """Offer test images to the explorer."""
    from numpy_vit.views.report.explorer import Offered

    for i in chosen:
        bytes_of = pictures[i].transpose(2, 0, 1)[None, : preprocessing.channels]
        truth = found.names[int(part.labels[i])]
        found.offered.append(Offered(f"test image {i}", preprocessing.apply(bytes_of)[0], pictures[i], truth))
