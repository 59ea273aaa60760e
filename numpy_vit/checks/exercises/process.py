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

from numpy_vit.checks.exercises import tasks
from numpy_vit.checks.exercises.judging import Verdict
from numpy_vit.errors import DataError

MEMORY = 4 << 30  # bytes of address space, where the platform can limit it
_MOST_PRINTED = 4000  # characters of what the file prints


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
        command = [sys.executable, "-m", f"{__package__}.runner", name, str(Path(path).resolve()), str(answer)]
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=printed, stderr=subprocess.STDOUT,
            start_new_session=True, preexec_fn=_limiter(),
        )  # fmt: skip
        try:
            status = child.wait(time_limit)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            _end(child)
        printed.seek(0)
        text = printed.read(_MOST_PRINTED).decode("utf-8", "replace")
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


def _limiter() -> Callable[[], None] | None:
    """What limits the child's memory, where the platform knows how."""
    if sys.platform == "win32" or sys.platform == "darwin":  # macOS accepts the limit and ignores it
        return None
    import resource

    return lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def _end(child: subprocess.Popen[bytes]) -> None:
    """End the process and whatever it started, which share a session."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            child.kill()
        else:
            os.killpg(child.pid, signal.SIGKILL)
    child.wait()
