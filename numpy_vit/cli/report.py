"""numpy-vit report."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy_vit.cli.progress import Progress
from numpy_vit.cli.usage import UsageError, add_workers, natural, positive, usage

if TYPE_CHECKING:
    from numpy_vit.cli.report_images import Gathered
    from numpy_vit.training.opened import Opened

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
    from numpy_vit.cli.report_images import gather
    from numpy_vit.files import write_bytes
    from numpy_vit.training.opened import open_model
    from numpy_vit.training.run_folder import read_rows
    from numpy_vit.views.report.facts import facts
    from numpy_vit.views.report.page import Contents, page

    with usage():
        opened = open_model(args.subject, **({"num_heads": args.heads} if args.heads else {}))
    folder, progress = Path(args.subject), Progress()
    out = Path(args.out).expanduser() if args.out else _beside(folder, opened)
    if out.is_dir() or not out.parent.is_dir():  # before minutes are spent
        raise UsageError(f"--out {out} has to be a file in a folder that exists")
    about = _about(folder)
    rows = read_rows(folder) if about else []
    gathered = gather(args, opened, about, progress)
    if not about:
        gathered.missing["curves"] = "Only the folder of a run has curves: numpy-vit report RUN."
    elif not rows:
        gathered.missing["curves"] = "The run has not finished an epoch yet."
    kind = f"{opened.path.name}, of the family {opened.family}"
    contents = Contents(
        title=_title(folder, about),
        config=opened.config,
        params=opened.params,
        facts=facts(opened.model, opened.config, opened.params, kind, about, gathered.answers),
        rows=rows,
        answers=gathered.answers,
        right=gathered.right,
        wrong=gathered.wrong,
        explored=_explored(opened, gathered, progress),
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


def _explored(opened: Opened, found: Gathered, progress: Progress) -> list[Any]:
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
            opened.model, opened.params, config, found.offered, found.names,
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


def _title(folder: Path, about: dict[str, Any]) -> str:
    name = folder.resolve().name
    return f"{name}: {about['data'].get('name')}" if about else name


def _beside(subject: Path, opened: Opened) -> Path:
    return subject / "report.html" if subject.is_dir() else opened.path.with_name(f"{opened.path.stem}.report.html")
