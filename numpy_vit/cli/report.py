"""numpy-vit report."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy_vit.cli.progress import Progress, reading
from numpy_vit.cli.usage import UsageError, add_workers, cores, natural, positive, usage

if TYPE_CHECKING:
    from numpy_vit.data import Preprocessing
    from numpy_vit.data.dataset import ImageSet
    from numpy_vit.training.opened import Opened
    from numpy_vit.views.report.answers import Answers, Sample
    from numpy_vit.views.report.explorer import Offered

_EXAMPLES = """examples:
  numpy-vit report runs/digits-1                             writes runs/digits-1/report.html
  numpy-vit report vit_tiny.safetensors --images cat.jpg     any known checkpoint, and what it sees in a picture
  numpy-vit report runs/flowers --data folder:~/flowers --out flowers.html
"""


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "report",
        help="one HTML file: curves, mistakes, and where each head looks",
        description="Write a model as one HTML file that needs no network: the run's curves, the confusion table, "
        "sample predictions, every shape from the image to the logits, position maps and filters, and an explorer of "
        "where each patch looks in each block and head, and of the gradient that flows back there.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("subject", metavar="RUN|FILE", help="the folder of a run, or any known checkpoint")
    parser.add_argument("--out", metavar="FILE.html", help="default: report.html in the folder, or beside the file")
    parser.add_argument("--images", nargs="+", default=[], metavar="IMAGE", help="image files for the explorer")
    parser.add_argument("--data", metavar="SPEC", help="its test part is evaluated (default: what it was trained on)")
    parser.add_argument(
        "--samples", type=natural, default=16, metavar="N", help="test images that are shown (default: 16)"
    )
    parser.add_argument("--heads", type=positive, metavar="N", help="attention heads, where the file does not say")
    parser.add_argument("--labels", metavar="FILE", help="the names of the classes, one a line")
    parser.add_argument(
        "--preprocessing", metavar="NAME", help="that of timm, deit, mae, ... models, instead of the checkpoint's"
    )
    add_workers(parser)
    parser.set_defaults(run=run, one_blas_thread=True)


def run(args: argparse.Namespace) -> int:
    """Gather, write and print."""
    from numpy_vit.cli.predict import names_of
    from numpy_vit.files import write_bytes
    from numpy_vit.training.opened import open_model
    from numpy_vit.views.report.facts import facts
    from numpy_vit.views.report.page import Contents, page

    with usage():
        opened = open_model(args.subject, **({"num_heads": args.heads} if args.heads else {}))
    names, named_by = names_of(opened, args.labels) if opened.config.num_classes else ([], "")
    folder, progress = Path(args.subject), Progress()
    out = Path(args.out).expanduser() if args.out else _beside(folder, opened)
    if out.is_dir() or not out.parent.is_dir():  # before minutes are spent
        raise UsageError(f"--out {out} has to be a file in a folder that exists")
    about = _about(folder)
    gathered = _gather(args, opened, about, progress)
    if gathered.answers and named_by.startswith("unknown"):
        names = list(gathered.answers.class_names)
    kind = f"{opened.path.name}, of the family {opened.family}"
    contents = Contents(
        title=_title(folder, about),
        config=opened.config,
        params=opened.params,
        facts=facts(opened.model, opened.config, opened.params, kind, about, gathered.answers),
        rows=_rows(folder, gathered) if about else (),
        answers=gathered.answers,
        right=gathered.right,
        wrong=gathered.wrong,
        explored=_explored(opened, gathered, names, progress),
        offered=len(gathered.offered),
        missing=gathered.missing,
    )
    whole = page(contents)
    write_bytes(out, whole)
    progress.clear()
    for text in dict.fromkeys(gathered.notes):
        print(f"numpy-vit: note: {text}", file=sys.stderr)
    print(f"{out}: {len(whole) / 1e6:.2f} MB, {len(contents.explored)} of {contents.offered} images in the explorer")
    return 0


@dataclass
class _Gathered:
    """What was found out with images; `missing` is by section, `notes` are for the terminal too."""

    offered: list[Offered]
    right: list[Sample]
    wrong: list[Sample]
    missing: dict[str, str]
    notes: list[str]
    answers: Answers | None = None


def _gather(args: argparse.Namespace, opened: Opened, about: dict[str, Any], progress: Progress) -> _Gathered:
    from numpy_vit.cli import seen_image
    from numpy_vit.data import Preprocessing
    from numpy_vit.errors import NumpyVitError
    from numpy_vit.training.opened import preprocessing_of
    from numpy_vit.views.report.explorer import Offered

    found = _Gathered([], [], [], {}, [])
    if not about:
        found.missing["curves"] = "Only the folder of a run has curves: numpy-vit report RUN."
    config = opened.config
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
            _test(args, opened, part, preprocessing, found, progress)
    except NumpyVitError as error:
        if args.data:
            raise
        return _without_images(found, f"The test images are missing: {error}; name other data with --data SPEC")
    if part is None:
        lacks = "The file does not say what it was trained on: name data with --data SPEC."
        found.missing |= {"confusion": lacks, "samples": lacks}
    if not found.offered:
        found.missing["explorer"] = "The explorer needs an image: name some with --images IMAGE, or data with --data."
    return found


def _without_images(found: _Gathered, why: str) -> _Gathered:
    """Say it once for people at the terminal, and in every section that lacks its images."""
    found.notes.append(why)
    found.missing |= {"confusion": why, "samples": why}
    if not found.offered:
        found.missing["explorer"] = f"{why}. Images of your own come with --images IMAGE."
    return found


def _test_part(
    args: argparse.Namespace, opened: Opened, about: dict[str, Any], preprocessing: Preprocessing, found: _Gathered,
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
            found.missing["confusion"] = (
                "These images are not those that the run began with: their fingerprint differs."
            )
            found.notes.append(found.missing["confusion"])
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


def _test(
    args: argparse.Namespace, opened: Opened, part: ImageSet, preprocessing: Preprocessing, found: _Gathered,
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
    found.answers = Answers(part.name, logits, part.labels, part.class_names)
    wrong = found.answers.mistakes(args.samples // 2)
    right = found.answers.hits(args.samples - len(wrong))
    chosen = [i for pair in zip_longest(right, wrong) for i in pair if i is not None]  # in turn
    pictures = pictures_of(part, chosen)
    found.right = [Sample(i, pictures[i]) for i in right]
    found.wrong = [Sample(i, pictures[i]) for i in wrong]
    _offer(found, part, preprocessing, chosen, pictures)


def _offer(
    found: _Gathered, part: ImageSet, preprocessing: Preprocessing, chosen: list[int], pictures: dict[int, Any]
) -> None:
    """Offer test images to the explorer."""
    from numpy_vit.views.report.explorer import Offered

    for i in chosen:
        bytes_of = pictures[i].transpose(2, 0, 1)[None, : preprocessing.channels]
        truth = part.class_names[int(part.labels[i])]
        found.offered.append(Offered(f"test image {i}", preprocessing.apply(bytes_of)[0], pictures[i], truth))


def _explored(opened: Opened, found: _Gathered, names: list[str], progress: Progress) -> list[Any]:
    """The maps of as many images as fit; where there cannot be any, the reason goes to `missing`."""
    from numpy_vit.errors import CheckpointError
    from numpy_vit.views.report import explorer

    config = opened.config
    if not explorer.heads_shown(config):
        found.missing["explorer"] = (
            f"The maps of {config.depth} blocks with {config.num_tokens:,} tokens would make the file too large."
            if config.depth
            else "A model of 0 blocks has no attention to look at."
        )
        return []
    try:
        return explorer.explore(
            opened.model, opened.params, config, found.offered, names,
            on_progress=lambda done: progress.line(f"maps of {done} of {len(found.offered)} images"),
        )  # fmt: skip
    except CheckpointError as error:
        found.missing["explorer"] = f"{opened.path.name}: {error}"
        found.notes.append(found.missing["explorer"])
        return []


def _about(folder: Path) -> dict[str, Any]:
    """What config.json says of a run; nothing where the subject is no run's folder."""
    from numpy_vit.errors import CheckpointError
    from numpy_vit.training.run_folder import CONFIG

    if not (folder / CONFIG).is_file():
        return {}
    try:
        about = json.loads((folder / CONFIG).read_text("utf-8"))
    except ValueError as error:
        raise CheckpointError(f"{folder / CONFIG} is not JSON: {error}") from error
    known = isinstance(about, dict) and isinstance(about.get("recipe"), dict) and isinstance(about.get("data"), dict)
    return about if known else {}  # other libraries write a config.json, too


def _rows(folder: Path, found: _Gathered) -> list[dict[str, Any]]:
    """The epochs so far."""
    from numpy_vit.errors import DataError
    from numpy_vit.training.run_folder import METRICS

    path = folder / METRICS
    try:
        rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.is_file() else []
    except ValueError as error:
        raise DataError(f"{path} is broken: {error}; take the broken line out") from error
    if not rows:
        found.missing["curves"] = "The run has not finished an epoch yet."
    return rows


def _title(folder: Path, about: dict[str, Any]) -> str:
    name = folder.resolve().name
    return f"{name}: {about['data'].get('name')}" if about else name


def _beside(subject: Path, opened: Opened) -> Path:
    return subject / "report.html" if subject.is_dir() else opened.path.with_name(f"{opened.path.stem}.report.html")
