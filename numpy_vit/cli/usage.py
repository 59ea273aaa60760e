"""Wrong values on the command line."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager


class UsageError(Exception):
    """A value on the command line that cannot be meant; the text is one line that says what to do."""


@contextmanager
def usage() -> Iterator[None]:
    """Turn the ValueError or TypeError of a configuration that was built from options into a UsageError."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise UsageError(str(error)) from error


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def add_workers(parser: argparse.ArgumentParser) -> None:
    """Add --workers; the results do not depend on it."""
    parser.add_argument(
        "--workers",
        type=positive,
        default=None,
        metavar="N",
        help="threads (default: all cores); the bits do not change",
    )


def positive(text: str) -> int:
    """Parse a whole number of at least 1, as an argparse type."""
    return _whole(text, 1)


def natural(text: str) -> int:
    """Parse a whole number of at least 0, as an argparse type."""
    return _whole(text, 0)


def _whole(text: str, least: int) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < least:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {least}")
    return int(text)
