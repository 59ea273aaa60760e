"""Telling how far a command is: a moving line on a terminal, one line an epoch elsewhere; counts and times in words."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable

_INTERVAL = 0.2  # seconds between two drawings of the moving line


class Progress:
    """Writes to standard output; `line` moves where that is a terminal and is not written elsewhere."""

    def __init__(self) -> None:
        self.terminal = sys.stdout.isatty()
        self._drawn = 0.0
        self._shown = False

    def line(self, text: str) -> None:
        """Draw the moving line, at most a few times a second."""
        now = time.monotonic()
        if not self.terminal or now - self._drawn < _INTERVAL:
            return
        self._drawn, self._shown = now, True
        columns = shutil.get_terminal_size().columns
        sys.stdout.write("\r\x1b[2K" + text[: columns - 1])
        sys.stdout.flush()

    def print(self, text: str) -> None:
        """Write a line that stays, in place of the moving one."""
        self.clear()
        print(text, flush=True)

    def clear(self) -> None:
        """Take the moving line away."""
        if self._shown:
            sys.stdout.write("\r\x1b[2K")
            sys.stdout.flush()
            self._shown = False


def reading(progress: Progress) -> Callable[[int, int], None]:
    """Return what shows how many images of a data set have been read."""
    return lambda done, total: progress.line(f"reading {done:,} of {total:,} images")


def counted(count: int, name: str) -> str:
    """Return "1 epoch", "2 epochs"."""
    return f"{count:,} {name}{'s' * (count != 1)}"


def duration(seconds: float) -> str:
    """Return "0:07", "12:34" or "1:02:03"."""
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
