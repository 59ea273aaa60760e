"""Running a learner's file in a process of its own, with limits of time and memory."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy_vit
from numpy_vit.checks.exercises import tasks
from numpy_vit.checks.exercises.judging import Verdict
from numpy_vit.errors import DataError

MEMORY = 4 << 30  # bytes of address space, where the platform can limit it
WRITTEN = 16 << 20  # bytes of any file that it writes, what it prints included
_MOST_PRINTED = 4000  # bytes shown of what the file prints
# This package, wherever it lies, and no file of the current folder: one named random.py would stand for Python's own.
_START = """import sys
root = sys.argv.pop(1)
sys.path[:] = [root, *filter(None, sys.path)]
import numpy_vit
sys.path.append(sys.path.pop(0))
from numpy_vit.checks.exercises import runner
runner.main(*sys.argv[1:])
"""


def judge_file(name: str, path: str | os.PathLike[str], time_limit: float = 60.0) -> tuple[Verdict, str]:
    """Judge a learner's file; it runs elsewhere, so that nothing in it can hold up or end this process.

    Parameters
    ----------
    name : of the exercise
    path : of the file
    time_limit : seconds

    Returns
    -------
    verdict, printed : what the file printed comes with it, cut short where it is long

    Raises
    ------
    ValueError : an unknown exercise.
    DataError : there is no such file.
    """
    tasks.check(name)
    if not Path(path).is_file():
        raise DataError(f"{path}: no such file: numpy-vit exercise {name} writes one")
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "printed").open("w+b") as printed:
        answer = Path(folder) / "answer.json"
        root = str(Path(numpy_vit.__file__).resolve().parents[1])
        program = [sys.executable, "-X", "utf8", "-c", _START, root]
        child = subprocess.Popen(
            [*program, name, str(Path(path).resolve()), str(answer)],
            stdin=subprocess.DEVNULL, stdout=printed, stderr=subprocess.STDOUT,
            start_new_session=True, preexec_fn=_limiter(time_limit),
        )  # fmt: skip
        try:
            status = child.wait(time_limit)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            _end(child)
        printed.seek(0)
        text = printed.read(_MOST_PRINTED).decode("utf-8", "replace")
        if printed.read(1):
            text += "\n(the rest of what the file prints is left out)\n"
        return _verdict(name, answer, status, time_limit), text


def _verdict(name: str, answer: Path, status: int | None, time_limit: float) -> Verdict:
    if status is None:
        return Verdict(name, "broken", f"the file does not end within {time_limit:g} seconds (--time-limit for more)")
    if status < 0:
        with contextlib.suppress(ValueError):
            return Verdict(name, "broken", f"the file's process was ended by {signal.Signals(-status).name}")
    try:
        return Verdict.from_json(json.loads(answer.read_text("utf-8")))
    except (OSError, ValueError, TypeError, KeyError):
        return Verdict(name, "broken", f"the file's process ended with status {status} before it was judged")


def _limiter(time_limit: float) -> Callable[[], None] | None:
    """What limits the child's memory, its files and its computing, where the platform knows how."""
    if sys.platform == "win32" or sys.platform == "darwin":  # macOS accepts the limit of memory and ignores it
        return None
    import resource

    # The clock ends the child before its computing does, unless nobody is left to look at the clock.
    computing = int(min(time_limit, 1e6)) * (os.cpu_count() or 1) + 5
    limits = {resource.RLIMIT_AS: MEMORY, resource.RLIMIT_FSIZE: WRITTEN, resource.RLIMIT_CPU: computing}

    def limit() -> None:
        for what, most in limits.items():
            _, hard = resource.getrlimit(what)
            least = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(what, (least, least))

    return limit


def _end(child: subprocess.Popen[bytes]) -> None:
    """End the process and whatever it started, which share a session."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            child.kill()
        else:
            os.killpg(child.pid, signal.SIGKILL)
    child.wait()
