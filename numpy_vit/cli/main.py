"""The command line: which command, and what becomes of its errors.

NumPy is not imported before a command runs: a command that cuts its work into shards wants one BLAS thread for
each of its own threads, and that number is read when NumPy loads.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any, NoReturn

from numpy_vit import __version__
from numpy_vit.bench import blas
from numpy_vit.cli import (
    attention,
    bench,
    compare,
    convert,
    data,
    evaluate,
    exercise,
    explain,
    filters,
    gradcheck,
    inspect,
    positions,
    predict,
    pretrain,
    probe,
    report,
    saliency,
    study,
    train,
)
from numpy_vit.cli.usage import UsageError
from numpy_vit.errors import NumpyVitError
from numpy_vit.training.allocator import keep_freed_memory

COMMANDS = (
    train, evaluate, pretrain, probe, study, data, predict, attention, saliency, positions, filters, report, inspect,
    convert, compare, gradcheck, explain, exercise, bench,
)  # fmt: skip

EXAMPLES = """examples:
  numpy-vit train                            train on the embedded digits, about a minute
  numpy-vit train --data folder:photos --init model.safetensors --image-size 224
  numpy-vit pretrain --data cifar10          learn without labels, as a masked autoencoder
  numpy-vit probe runs/pretrain-1 --data cifar10
  numpy-vit eval runs/digits-1               accuracy and confusion table of a run
  numpy-vit positions runs/digits-1          what the model learned of where its patches lie
  numpy-vit filters model.safetensors        what its patch projection looks for
  numpy-vit report runs/digits-1             one HTML file: curves, mistakes, where it looks
  numpy-vit study heads                      answer a question by training, with its spread
  numpy-vit data fetch cifar10               download a public data set
  numpy-vit predict cat.png --checkpoint model.safetensors
  numpy-vit attention cat.png --checkpoint model.safetensors --out cat
  numpy-vit saliency cat.png --checkpoint model.safetensors --out cat
  numpy-vit inspect model.safetensors        what is in a checkpoint, and what is wrong with it
  numpy-vit convert vit_b16.npz vit_b16.safetensors
  numpy-vit compare model.safetensors --reference reference.safetensors
  numpy-vit gradcheck                        check every hand-derived gradient
  numpy-vit explain layernorm                a derivation, its code, and numbers
  numpy-vit exercise layernorm               write a backward yourself, and have it judged
  numpy-vit bench tiny-step                  a step's speed, and where its time goes
"""


class Help(argparse.HelpFormatter):
    """Descriptions are filled to the terminal's width; examples keep their lines."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text.startswith("examples:") else super()._fill_text(text, width, indent)


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=Help, **options)

    def error(self, message: str) -> NoReturn:
        """Print what is wrong and leave with status 2."""
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status: 0 done, 1 the answer is no, 2 wrong usage or data, 130 interrupted."""
    parser = Parser(
        prog="numpy-vit",
        description="Vision Transformers in plain NumPy, every gradient derived by hand.",
        epilog=EXAMPLES,
    )
    parser.add_argument("--version", action="version", version=f"numpy_vit {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=Parser)
    for command in COMMANDS:
        command.add(commands)
    args = parser.parse_args(argv)
    if args.one_blas_thread:
        blas.one_thread_unless_set(os.environ)
        keep_freed_memory()
    warnings.showwarning = _one_line
    try:
        status: int = args.run(args)
        sys.stdout.flush()
    except (NumpyVitError, UsageError) as error:
        print(f"numpy-vit: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        print(f"numpy-vit: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nnumpy-vit: interrupted", file=sys.stderr)
        return 130
    return status


def _one_line(message: Warning | str, *_: object, **__: object) -> None:
    print(f"numpy-vit: note: {message}", file=sys.stderr)
