"""The numbered steps of a derivation, and how they are given away one by one."""

from __future__ import annotations

import inspect
import re
from types import ModuleType

_STEP = re.compile(r"\((\d+)\) ")
_MARK = re.compile(r"\((\d+)\)")  # in the comment behind a line of code
_CLAUSE_END = re.compile(r"[,;:.]\s+(?![^\[(]*[\])])")  # not within brackets
_ASIDE = re.compile(r"(with|as|so|and|then) ")  # begins a clause that is not what its step is about


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
    """Return the hints towards a gradient, each of which says one thing more; the first never says what to write.

    Of each wanted step what it is about, then what it starts from, then the step; then those before it, the nearest
    first, from which it follows.  A step that names nothing to start from starts from the one before.  Never code.

    Parameters
    ----------
    wanted : the steps that give the gradient, the likeliest first; all of them in order for the whole derivation
    """
    derivation, texts, told = steps(layer), list[str](), set[int]()
    for k in wanted:
        if k in told:
            continue
        premise, conclusion = _halves(derivation[k])
        about = _left_sides(conclusion)
        if about:
            texts.append(f"step ({k}) is about {', '.join(about)}")
        if premise:
            texts.append(f"step ({k}) starts from: {premise}")
        before = [number for number in range(k - 1, 0, -1) if number not in told]
        first = before[:1] if not premise else []
        order = [*first, k, *before[len(first) :]]
        texts += [f"step ({number}): {derivation[number]}" for number in order]
        told.update(order)
    return texts


def _halves(step: str) -> tuple[str, str]:
    """What a step starts from, where it says so, and what it concludes."""
    mark = next((mark for mark in ("⇒", ": ", "; ") if mark in step), "")
    if not mark:
        return "", step
    premise, _, conclusion = step.partition(mark)
    return premise.strip(), conclusion.strip()


def _left_sides(conclusion: str) -> list[str]:
    """What stands on the left of the equations of a conclusion, asides apart."""
    equations = [clause.partition(" = ") for clause in _CLAUSE_END.split(conclusion) if " = " in clause]
    return [left.strip() for left, _, _ in equations if not _ASIDE.match(left)]
