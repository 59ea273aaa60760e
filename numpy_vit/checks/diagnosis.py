"""What is wrong with a gradient, in words: only what the numbers say for certain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from numpy_vit.checks.report import EVERYTHING
from numpy_vit.checks.subject import is_input
from numpy_vit.tree import Array

FIT = 1e-5  # a pattern is named when it explains the gradient to this relative accuracy
NO_PATTERN = "differs without a simple pattern"


@dataclass(frozen=True)
class Evidence:
    """A wrong gradient beside the right one.

    Parameters
    ----------
    name : "x", "params.weight", ...
    analytic, numeric : of the leaf's shape; if not `complete`, some entries in a row.
    parts : (B, ...) the numeric gradient split by samples; None where the outputs lack the batch's axis.
    y : an output of the leaf's shape, None if there is none.
    batch : the batch size.
    """

    name: str
    analytic: Array
    numeric: Array
    parts: Array | None
    y: Array | None
    batch: int
    complete: bool


def finding(evidence: Evidence) -> str:
    """Return the end of the sentence that begins with the array's name."""
    a, n = evidence.analytic, evidence.numeric
    if not np.any(a) and np.any(n):
        return "is zero: never computed"
    if np.any(a) and not np.any(n):
        return "is not zero, although the true gradient is"
    if _fits(a, n):
        gap = np.linalg.norm(a - n) / np.linalg.norm(n)
        reason = "float32 inside the backward, or a tiny term is missing"
        return f"is right up to a relative error of {gap:.0e}: {reason}"
    patterns = [_scale(evidence)]
    if evidence.complete:
        patterns += [_one_sample(evidence), _order(a, n), _constant(a - n), _multiple(evidence), _place(a, n)]
    return next((text for text in patterns if text), NO_PATTERN)


def diagnose(findings: Mapping[str, str], right: list[str]) -> str:
    """Join the findings about the wrong arrays, and say on which side of the layer they lie.

    Parameters
    ----------
    findings : what `finding` said, by array name.
    right : the names of the arrays whose gradients were checked and are right.
    """
    lines = [f"{name} {text}" for name, text in findings.items()]
    wrong_inputs = [name for name in findings if is_input(name)]
    right_inputs = [name for name in right if is_input(name)]
    wrong_arrays = [name for name in findings if name != EVERYTHING]
    some_params_right = len(right) > len(right_inputs)
    if wrong_inputs and len(wrong_inputs) == len(findings) and some_params_right:
        lines.append(f"{' and '.join(wrong_inputs)} is wrong while all parameter gradients are right")
    if wrong_arrays and not wrong_inputs and right_inputs:
        lines.append(f"the input gradient is right while these are wrong: {', '.join(wrong_arrays)}")
    return "\n".join(lines)


def _fits(guess: Array, truth: Array) -> bool:
    return bool(np.linalg.norm(guess - truth) <= FIT * np.linalg.norm(truth))


def _scale(evidence: Evidence) -> str | None:
    a, n = np.ravel(evidence.analytic), np.ravel(evidence.numeric)
    square = float(n @ n)
    k = float(a @ n) / square if square else 0.0
    if k == 0.0 or not _fits(a / k, n):
        return None
    size, sign = abs(k), "has the wrong sign" if k < 0 else ""
    if abs(size - 1.0) <= FIT:
        return sign
    whole = _whole(size) or _whole(1.0 / size)
    if n.size == 1 and whole is None:
        return None  # any two numbers have a ratio
    large = size > 1.0
    ratio = size if large else 1.0 / size
    text = f"is {ratio:.6g} times too {'large' if large else 'small'}"
    if not large:
        text += f" (a factor of {f'1/{whole}' if whole else f'{size:.6g}'})"
    if whole is not None and whole == evidence.batch:
        text += f": {'multiplied' if large else 'divided'} by the batch size"
    return f"{sign} and {text}" if sign else text


def _whole(number: float) -> int | None:
    nearest = round(number)
    return nearest if nearest >= 1 and abs(number - nearest) <= FIT * number else None


def _one_sample(evidence: Evidence) -> str | None:
    if evidence.parts is None:
        return None
    for sample, part in enumerate(evidence.parts):
        if np.any(part) and _fits(evidence.analytic, part):
            if is_input(evidence.name):
                return f"is right at sample {sample} only and zero elsewhere"
            return f"is that of sample {sample} alone: it is not summed over the batch"
    return None


def _order(a: Array, n: Array) -> str | None:
    if a.ndim >= 2 and min(a.shape[-2:]) > 1:
        rows, columns = a.shape[-2:]
        swapped = a.reshape(*a.shape[:-2], columns, rows).swapaxes(-1, -2)
        if _fits(swapped, n):
            return "is transposed" + ("" if rows == columns else " and then reshaped to the right shape")
    if a.size > 2 and _fits(np.sort(a, axis=None), np.sort(n, axis=None)):
        return "has the right entries in the wrong places"
    return None


def _constant(difference: Array) -> str | None:
    for axis in (-1, -2):
        # Below three entries a constant is no evidence.
        if difference.ndim >= -axis and difference.shape[axis] > 2:
            mean = np.broadcast_to(difference.mean(axis=axis, keepdims=True), difference.shape)
            if _fits(difference, mean):
                return f"misses a constant along axis {axis} (a dropped mean or sum term)"
    return None


def _multiple(evidence: Evidence) -> str | None:
    y, difference = evidence.y, evidence.analytic - evidence.numeric
    if y is None or y.ndim == 0 or y.shape[-1] < 3:
        return None
    square = (y * y).sum(axis=-1, keepdims=True)
    factor = (difference * y).sum(axis=-1, keepdims=True) / np.where(square > 0, square, 1.0)
    if not _fits(difference, factor * y):
        return None
    return "misses a multiple of the output y along axis -1 (a dropped y·sum term)"


def _place(a: Array, n: Array) -> str | None:
    wrong = np.abs(a - n) > FIT * np.max(np.abs(n))
    for axis in range(a.ndim):
        others = tuple(other for other in range(a.ndim) if other != axis)
        bad = np.flatnonzero(wrong.any(axis=others))
        good = np.flatnonzero(~wrong.any(axis=others))
        if 0 < len(bad) <= 4 and len(good) >= len(bad):
            return f"is right except at {', '.join(map(str, bad))} of axis {axis}"
        if len(good) == 1 and len(bad):
            return f"is right only at {good[0]} of axis {axis}"
    return None
