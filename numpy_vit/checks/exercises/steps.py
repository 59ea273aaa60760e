"""The numbered steps of a derivation, and how they are given away one by one."""

from __future__ import annotations

import inspect
import re
from types import ModuleType

_STEP = re.compile(r"\((\d+)\) ")
_MARK = re.compile(r"\((\d+)\)")  # in the comment behind a line of code


def steps(layer: ModuleType) -> dict[int, str]:
    """Return the text of each step "(k) ..." of a backward's docstring, lines that continue it joined."""
    found: dict[int, list[str]] = {}
    current: list[str] | None = None
    for line in (inspect.getdoc(layer.backward) or "").splitlines():
        match = _STEP.match(line)
        if match:
            current = found.setdefault(int(match[1]), [])
            line = line[match.end() :]
        elif not line.startswith("    "):
            current = None  # a blank line, or a remark below the steps
        if current is not None:
            current.append(line.strip())
    return {number: " ".join(lines) for number, lines in found.items()}


def marked(layer: ModuleType, text: str) -> tuple[int, ...]:
    """Return the steps that a piece of a layer's source uses, by the marks "# (3)" behind its lines.

    A line without a mark works towards the next one of its function that has one, or follows from the one above.

    Parameters
    ----------
    text : occurs once in the source

    Returns
    -------
    steps : none where the function has no marks
    """
    source = inspect.getsource(layer)
    first = source[: source.index(text)].count("\n")
    last = first + text.rstrip("\n").count("\n")
    lines = source.splitlines()
    begin = max((i for i in range(last + 1) if lines[i].startswith("def ")), default=0)
    end = next((i for i in range(last + 1, len(lines)) if lines[i].startswith("def ")), len(lines))
    for i in [*range(first, end), *range(first, begin, -1)]:
        found = _MARK.findall(lines[i].partition("#")[2])
        if found:
            return tuple(map(int, found))
    return ()


def hints(layer: ModuleType, wanted: tuple[int, ...]) -> list[str]:
    """Return the hints towards a gradient, each of which says one thing more.

    First what the step starts from; then the step; then those before it, the nearest first, from which it follows; then
    the other steps that may be meant.  Never code.

    Parameters
    ----------
    wanted : the steps that give the gradient, the likeliest first
    """
    derivation = steps(layer)
    told, texts = set(), []
    for k in wanted:
        premise = _premise(derivation[k])
        if k not in told and premise != derivation[k]:
            texts.append(f"step ({k}) starts from: {premise}")
        for number in range(k, 0, -1):
            if number in derivation and number not in told:
                told.add(number)
                texts.append(f"step ({number}): {derivation[number]}")
    return texts


def _premise(step: str) -> str:
    """What stands before the step's conclusion, or the first of its clauses."""
    for mark in ("⇒", "; ", ": ", ",  "):
        if mark in step:
            return step.split(mark)[0].strip()
    return step
