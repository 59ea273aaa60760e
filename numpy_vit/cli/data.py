"""numpy-vit data: the commands about data sets."""

from __future__ import annotations

import argparse
import os
from typing import Any

from numpy_vit.cli import data_show
from numpy_vit.cli.progress import Progress
from numpy_vit.cli.usage import UsageError

_EXAMPLES = """examples:
  numpy-vit data fetch                      what can be fetched, and how large it is
  numpy-vit data fetch cifar10
  numpy-vit data show cifar10 --out cifar10.png
"""
_FETCH_EXAMPLES = """examples:
  numpy-vit data fetch                      what can be fetched, and how large it is
  numpy-vit data fetch cifar10              170 MB, to ~/.cache/numpy_vit/cifar10
  numpy-vit data fetch mnist --to mnist     then: numpy-vit train --data mnist:mnist
  numpy-vit data fetch cifar100 --address https://mirror.example.org/cifar/
"""


def add(commands: Any) -> None:
    """Add the command and its own commands to the parser."""
    parser = commands.add_parser(
        "data",
        help="fetch data sets and look at them",
        description="Fetch data sets and look at them.",
        epilog=_EXAMPLES,
    )
    subcommands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_fetch(subcommands)
    data_show.add(subcommands)


def _add_fetch(subcommands: Any) -> None:
    parser = subcommands.add_parser(
        "fetch",
        help="download a data set",
        description="Download a data set and check it. A download that was interrupted goes on where it was; files "
        "that are there are not fetched again. Without NAME: what there is.",
        epilog=_FETCH_EXAMPLES,
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="mnist, fashion-mnist, cifar10 or cifar100")
    parser.add_argument(
        "--to",
        metavar="FOLDER",
        help="where to put the files (default: NAME below $NUMPY_VIT_DATA, or below ~/.cache/numpy_vit)",
    )
    parser.add_argument("--address", metavar="URL", help="of a mirror that has the files directly below it")
    parser.set_defaults(run=run, one_blas_thread=False)


def run(args: argparse.Namespace) -> int:
    """Fetch a data set, or list what can be fetched; return the exit status."""
    from numpy_vit.data import fetch, registry

    if args.name is None:
        if args.to or args.address:
            raise UsageError("--to and --address need the NAME of a data set")
        _list()
        return 0
    release = registry.release(args.name)
    folder = args.to or str(registry.home(args.name))
    print(f"{args.name}: {release.about}, {_size(release.size)}, to {folder}", flush=True)
    progress = Progress()

    def on_progress(name: str, done: int, size: int) -> None:
        progress.line(f"{name}  {_size(done)} of {_size(size)}  {done / size:.0%}")

    try:
        fetch.fetch(args.name, folder, on_progress, progress.print, args.address)
    except KeyboardInterrupt:
        progress.clear()
        print("interrupted; the same command goes on where it was")
        return 130
    finally:
        progress.clear()
    print(f"train with: numpy-vit train --data {_spec(args.name, folder)}")
    return 0


def _list() -> None:
    from numpy_vit.data import registry

    layout = "{:13}  {:>8}  {:>5}  {}"
    print(layout.format("name", "size", "files", "what it is"))
    for name, release in registry.RELEASES.items():
        print(layout.format(name, _size(release.size), len(release.files), release.about))
    print(f"fetch one with: numpy-vit data fetch NAME, which puts it into {registry.data_home()}{os.sep}NAME")


def _spec(name: str, folder: str) -> str:
    """Return how --data names what was fetched."""
    import shlex

    from numpy_vit.data import SOURCES

    return name if SOURCES[name].default == folder else shlex.quote(f"{name}:{folder}")


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB"
