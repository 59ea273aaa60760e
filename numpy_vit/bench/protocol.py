"""How a driver and the processes that it times talk: a JSON object a line, a request and its answer in turn.

The process says {"ready": true, "base": bytes} when its imports are done and its inputs read, where base is its
resident size after the imports.  Then it answers

    {"do": "run"}                     {"seconds": s}, of the work done once
    {"do": "outputs", "file": path}   {}, when the .npz file is written
    {"do": "memory"}                  {"base": bytes, "peak": bytes}

and what else it offers.  {"error": text} is the answer when something fails.  It ends when its input does.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol, TextIO

import numpy as np

from numpy_vit.bench import measure
from numpy_vit.errors import NumpyVitError
from numpy_vit.files import replacing

Answer = dict[str, Any]


class ContenderError(NumpyVitError):
    """A process that is timed cannot do what it was asked; the text is one line."""


class Contender(Protocol):
    """Who does the work: `outputs` as `workloads.Job.outputs`."""

    def run(self) -> Any:
        """Do the work once, and return when it is done."""

    def outputs(self) -> dict[str, Any]:
        """Return arrays and numbers by name, from the inputs as they were read."""


def serve(
    build: Callable[[], Contender],
    base: int | None,
    requests: Iterable[str],
    answers: TextIO,
    more: Mapping[str, Callable[[Any], Answer]] | None = None,
) -> int:
    """Build a contender and answer requests until there are no more; return the exit status.

    Parameters
    ----------
    base : the resident size after imports
    more : further requests and what answers them, given the contender
    """

    def say(answer: Answer) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    try:
        contender = build()
    except Exception as error:  # the driver decides what a failure means
        say({"error": _one_line(error)})
        return 1
    say({"ready": True, "base": base})
    for line in requests:
        request = json.loads(line)
        try:
            say(_answer(contender, request, base, more or {}))
        except Exception as error:  # as above
            say({"error": _one_line(error)})
    return 0


def _answer(
    contender: Contender, request: Answer, base: int | None, more: Mapping[str, Callable[[Any], Answer]]
) -> Answer:
    what = request["do"]
    if what == "run":
        began = time.perf_counter()
        contender.run()
        return {"seconds": time.perf_counter() - began}
    if what == "outputs":
        with replacing(request["file"]) as file:
            np.savez(file, **contender.outputs())
        return {}
    if what == "memory":
        return {"base": base, "peak": measure.peak_bytes()}
    if what in more:
        return more[what](contender)
    raise ValueError(f"unknown request {what!r}")


def _one_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def standard_streams() -> tuple[TextIO, TextIO]:
    """Return standard input and output for the protocol; whatever else is printed goes to standard error."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return sys.stdin, answers


class Process:
    """A contender's process, seen by the driver; a context manager that leaves none behind.

    Raises
    ------
    ContenderError : from everything here, when it answers with an error or ends.
    """

    def __init__(self, name: str, command: Sequence[str], env: Mapping[str, str]) -> None:
        self.name = name
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 (closed in close)
        pipe = subprocess.PIPE
        # A session of its own: Ctrl-C reaches the driver alone, which ends the process and what it has started.
        try:
            self._process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=self._errors, env=env, encoding="utf-8", start_new_session=True
            )
        except BaseException:  # Ctrl-C among them; a process that has begun ends with its input
            self._errors.close()
            raise
        try:
            self.about = self._read()
        except BaseException:
            self.close()
            raise

    def ask(self, what: str, **more: Any) -> Answer:
        """Send a request and return the answer."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": what, **more}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended: reading says how
        return self._read()

    def run(self) -> float:
        """Have the work done once and return its seconds."""
        return float(self.ask("run")["seconds"])

    def close(self) -> None:
        """End the process, whatever it does at the moment."""
        if self._process.poll() is None:
            if os.name == "posix":
                os.killpg(self._process.pid, signal.SIGKILL)
            else:
                self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None:
                with suppress(BrokenPipeError):  # a request that nobody will read
                    stream.close()

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self) -> Answer:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            status = self._process.wait()
            self._errors.seek(0)
            said = [text.strip() for text in self._errors if text.strip()]
            raise ContenderError(f"{self.name} ended with status {status}" + (f" ({said[-1][:300]})" if said else ""))
        answer: Answer = json.loads(line)
        if "error" in answer:
            raise ContenderError(f"{self.name}: {answer['error']}")
        return answer
