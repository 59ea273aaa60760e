"""Judging a learner's backward: right, or which gradient is wrong, how, and which step of the derivation gives it."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator, Set
from dataclasses import asdict, dataclass, field
from types import ModuleType
from typing import Any

import numpy as np

from numpy_vit import tree
from numpy_vit.checks import catalogue
from numpy_vit.checks.case import Case
from numpy_vit.checks.exercises import steps, tasks
from numpy_vit.checks.exercises.mistakes import MISTAKES, step, with_mistake
from numpy_vit.checks.gradient_check import gradcheck
from numpy_vit.checks.report import EVERYTHING, Report

_SAME = 1e-9  # two backwards with one and the same mistake agree to rounding


@dataclass(frozen=True)
class Verdict:
    """What was found of a learner's file.

    Parameters
    ----------
    exercise : the layer
    status : "right"; "wrong": backward is; "empty": it is still to be written; "broken": the file cannot be judged
    text : what is wrong, in words
    example : on which of the layer's examples
    gradients : how many were compared and found right
    errors : of a right backward: each gradient's worst relative error
    wrong : the names of the wrong ones, in the order in which backward finds them
    steps : of the derivation, which give the first of them; the likeliest first.  All in order where backward answers
        nothing
    """

    exercise: str
    status: str
    text: str = ""
    example: str = ""
    gradients: int = 0
    errors: dict[str, float] = field(default_factory=dict)
    wrong: tuple[str, ...] = ()
    steps: tuple[int, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the fields as a plain dict for JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Verdict:
        """Restore what `to_json` gave and JSON carried."""
        return cls(**{**stored, "wrong": tuple(stored["wrong"]), "steps": tuple(stored["steps"])})


def judge(name: str, learner: ModuleType, path: str = "") -> Verdict:
    """Check a learner's forward and backward on every example of a layer, up to the first that is wrong.

    Parameters
    ----------
    name : of the exercise
    learner : has `forward` and `backward`
    path : of the learner's file, whose lines are named when it raises an error

    Raises
    ------
    ValueError : an unknown exercise.
    """
    tasks.check(name)
    for function in ("forward", "backward"):
        if not callable(getattr(learner, function, None)):
            return Verdict(name, "broken", f"the file has no function {function}: write a new one and copy your work")
    checked, errors = 0, dict[str, float]()
    for ours, theirs in zip(catalogue.cases(name), catalogue.cases(name, of=_stand_in(name, learner)), strict=True):
        try:
            if not _same_output(ours, theirs):
                text = "forward gives other numbers than the layer's: put the original back, the exercise is backward"
                return Verdict(name, "broken", text, ours.what)
        except Exception as error:
            return Verdict(name, "broken", raised(error, path), ours.what)
        try:
            report = gradcheck(
                theirs.forward, theirs.backward, theirs.params, theirs.x, directions=theirs.directions, name=ours.what
            )
        except NotImplementedError:
            return Verdict(name, "empty", "backward is still to be written", ours.what, steps=_every_step(name))
        except Exception as error:
            return Verdict(name, "wrong", raised(error, path, "backward"), ours.what, steps=_every_step(name))
        unanswered = _unanswered(ours, report)
        if unanswered or not report.ok:
            return _wrong(name, ours, theirs, report, unanswered)
        compared = [row for row in report.rows if row.numeric is not None]
        checked += len(compared)
        for row in compared:
            errors[row.name] = max(errors.get(row.name, 0.0), row.error)
    errors.pop(EVERYTHING, None)
    return Verdict(name, "right", gradients=checked, errors=errors)


def _every_step(name: str) -> tuple[int, ...]:
    return tuple(steps.steps(catalogue.module(name)))


def _stand_in(name: str, learner: ModuleType) -> ModuleType:
    """The layer's module with the learner's forward and backward in it."""
    ours = catalogue.module(name)
    module = ModuleType(ours.__name__)
    module.__dict__.update({**vars(ours), "forward": learner.forward, "backward": learner.backward})
    return module


def _same_output(ours: Case, theirs: Case) -> bool:
    one, other = (tree.flatten({"": _run(case)[0]}) for case in (ours, theirs))
    return one.keys() == other.keys() and all(
        np.shape(one[key]) == np.shape(other[key]) and np.allclose(one[key], other[key], 1e-10, 1e-12) for key in one
    )


def _run(case: Case) -> tuple[Any, Any]:
    made: tuple[Any, Any] = case.forward(case.x) if case.params is None else case.forward(case.params, case.x)
    return made


def _unanswered(ours: Case, report: Report) -> list[str]:
    """The gradients for which the learner's backward answers None, and ours a number: gradcheck lets them pass."""
    skipped = [row.name for row in report.rows if row.ok and row.numeric is None]
    right = _gradients(ours) if skipped else {}
    return [key for key in skipped if right.get(key) is not None]


def _wrong(name: str, ours: Case, theirs: Case, report: Report, unanswered: list[str]) -> Verdict:
    found = [row.name for row in report.rows if not row.ok and row.name != EVERYTHING] + unanswered
    lines = [f"{key} is None: backward answers no gradient for it" for key in unanswered]
    if report.rows and len(unanswered) < len(report.rows):  # else gradcheck only says that nothing was compared
        lines += report.diagnosis.splitlines()
    if not found:  # what backward does breaks its contract
        return Verdict(name, "wrong", report.diagnosis, ours.what)
    first, wanted = tasks.first_wrong(name, found)
    mistake = None if unanswered else _known_mistake(name, ours, theirs, first)
    if mistake is not None:
        what, broken = mistake
        lines.insert(0, f"a known mistake: {what}")
        wanted = (broken, *(k for k in wanted if k != broken))
    ordered = (first, *(key for key in found if key != first))
    return Verdict(name, "wrong", "\n".join(lines), ours.what, wrong=ordered, steps=wanted)


def _known_mistake(name: str, ours: Case, theirs: Case, first: str) -> tuple[str, int] | None:
    """The mistake of the table that gives the same gradients, or else the same first wrong one, and its step."""
    right, given = _gradients(ours), _gradients(theirs)
    if given.get(first) is None or _alike(given, right, {first}):
        return None
    found = {}
    for what, case in _mistaken(name, ours.what):
        with contextlib.suppress(Exception):  # some mistakes only run on some examples
            found[what] = _gradients(case)
    for keys in (given.keys() | right.keys(), {first}):
        for what, made in found.items():
            if _alike(given, made, keys):
                return what, step(name, what)
    return None


def _mistaken(name: str, what: str) -> Iterator[tuple[str, Case]]:
    for layer, words, old, new in MISTAKES:
        if layer == name:
            cases = catalogue.cases(name, of=with_mistake(name, (old, new)))
            yield words, next(case for case in cases if case.what == what)


def _gradients(case: Case) -> dict[str, Any]:
    """All gradients of an example by their names, for one random upstream gradient."""
    y, cache = _run(case)
    rng = np.random.default_rng(0)
    dy = tree.map(lambda leaf: rng.standard_normal(np.shape(leaf)) if np.ndim(leaf) else float(rng.normal()), y)
    answer = case.backward(dy, cache)
    return tree.flatten({"x": answer} if case.params is None else {"x": answer[0], "params": answer[1]})


def _alike(one: dict[str, Any], other: dict[str, Any], keys: Set[str]) -> bool:
    """Whether these gradients are the same in both."""
    pairs = [(one.get(key), other.get(key)) for key in keys]
    return all(
        a is b is None
        or (a is not None and b is not None and np.shape(a) == np.shape(b) and np.allclose(a, b, _SAME, _SAME))
        for a, b in pairs
    )


def raised(error: BaseException, path: str, what: str = "the file") -> str:
    """Return an error in one line, with the last line of the learner's file that it passed.

    Parameters
    ----------
    path : of the learner's file
    what : fails, in words
    """
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if path and frame.filename == path]
    place = f" in line {lines[-1]}" if lines else ""
    return f"{what} fails{place}: {type(error).__name__}: {' '.join(str(error).split())}".rstrip(": ")
