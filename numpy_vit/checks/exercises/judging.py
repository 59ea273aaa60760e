"""Judging a learner's backward: right, or which gradient is wrong, how, and which step of the derivation gives it."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from types import ModuleType
from typing import Any

import numpy as np

from numpy_vit import tree
from numpy_vit.checks import catalogue
from numpy_vit.checks.case import Case
from numpy_vit.checks.exercises import tasks
from numpy_vit.checks.exercises.mistakes import MISTAKES, with_mistake
from numpy_vit.checks.gradient_check import gradcheck
from numpy_vit.checks.report import EVERYTHING

_SAME = 1e-9  # two backwards with one and the same mistake agree to rounding


@dataclass(frozen=True)
class Verdict:
    """What was found of a learner's file.

    Parameters
    ----------
    exercise : the layer
    status : "right"; "wrong": a gradient is; "empty": backward is still to be written; "broken": it cannot be judged
    text : what is wrong, in words
    example : on which of the layer's examples
    gradients : how many were compared and found right
    wrong : the names of the wrong ones, in the order in which backward finds them
    steps : of the derivation, which give the first of them; the likeliest first
    """

    exercise: str
    status: str
    text: str = ""
    example: str = ""
    gradients: int = 0
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
    checked = 0
    for ours, theirs in zip(catalogue.cases(name), catalogue.cases(name, of=_stand_in(name, learner)), strict=True):
        try:
            if not _same_output(ours, theirs):
                text = "forward gives other numbers than the layer's: put the original back, the exercise is backward"
                return Verdict(name, "broken", text, ours.what)
            report = gradcheck(
                theirs.forward, theirs.backward, theirs.params, theirs.x, directions=theirs.directions, name=ours.what
            )
        except NotImplementedError:
            return Verdict(name, "empty", "backward is still to be written", ours.what, steps=(1,))
        except Exception as error:
            return Verdict(name, "broken", raised(error, path), ours.what, steps=(1,))
        if not report.ok:
            return _wrong(name, ours, theirs, [row.name for row in report.rows if not row.ok], report.diagnosis)
        checked += sum(row.numeric is not None for row in report.rows)
    return Verdict(name, "right", gradients=checked)


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


def _wrong(name: str, ours: Case, theirs: Case, wrong: list[str], diagnosis: str) -> Verdict:
    found = [key for key in wrong if key != EVERYTHING]
    if not found:  # what backward returns or does breaks its contract
        return Verdict(name, "wrong", diagnosis, ours.what)
    first, steps = tasks.first_wrong(name, found)
    mistake = _known_mistake(name, ours.what, theirs)
    text = f"a known mistake: {mistake}\n{diagnosis}" if mistake else diagnosis
    ordered = (first, *(key for key in found if key != first))
    return Verdict(name, "wrong", text, ours.what, wrong=ordered, steps=steps)


def _known_mistake(name: str, what: str, theirs: Case) -> str | None:
    """The mistake of the table that gives the same gradients, if there is one."""
    given = _gradients(theirs)
    for mistaken, case in _mistaken(name, what):
        try:
            same = given is not None and _alike(given, _gradients(case))
        except Exception:
            continue  # some mistakes only run on some examples
        if same:
            return mistaken
    return None


def _mistaken(name: str, what: str) -> Iterator[tuple[str, Case]]:
    for layer, words, old, new in MISTAKES:
        if layer == name:
            cases = catalogue.cases(name, of=with_mistake(name, (old, new)))
            yield words, next(case for case in cases if case.what == what)


def _gradients(case: Case) -> dict[str, Any] | None:
    """All gradients of an example by their names, for one random upstream gradient."""
    y, cache = _run(case)
    rng = np.random.default_rng(0)
    dy = tree.map(lambda leaf: rng.standard_normal(np.shape(leaf)) if np.ndim(leaf) else float(rng.normal()), y)
    answer = case.backward(dy, cache)
    return tree.flatten({"x": answer} if case.params is None else {"x": answer[0], "params": answer[1]})


def _alike(one: dict[str, Any], other: dict[str, Any] | None) -> bool:
    if other is None or one.keys() != other.keys():
        return False
    return all(
        one[key] is other[key] is None
        or (np.shape(one[key]) == np.shape(other[key]) and np.allclose(one[key], other[key], _SAME, _SAME))
        for key in one
    )


def raised(error: Exception, path: str) -> str:
    """Return an error in one line, with the last line of the learner's file that it passed."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if path and frame.filename == path]
    place = f" in line {lines[-1]}" if lines else ""
    return f"the file fails{place}: {type(error).__name__}: {' '.join(str(error).split())}".rstrip(": ")
