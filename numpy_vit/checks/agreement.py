"""Comparing the backward's gradient of one array, or of all, with the numeric derivative."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from numpy_vit.checks.numerical import (
    Estimate,
    Line,
    Outputs,
    direction_line,
    element_line,
    estimate,
    refine,
    step,
    typical,
)
from numpy_vit.checks.report import OK, ROUGH, WRONG, Row
from numpy_vit.tree import Array


@dataclass(frozen=True)
class Tolerance:
    """How far the two may be apart: relatively, or absolutely."""

    rtol: float
    atol: float

    def error(self, analytic: float, numeric: Estimate, rounding: float) -> float:
        """Return |a - n| / max(|a|, |n|, floor), floor = (noise of n + rounding of a + atol) / rtol.

        It is at most rtol exactly if |a - n| lies within rtol·max(|a|, |n|) or within the floor's numerator.
        """
        gap = abs(analytic - numeric.value)
        if not math.isfinite(gap):
            return math.inf
        floor = (numeric.noise + rounding + self.atol) / self.rtol
        return gap / max(abs(analytic), abs(numeric.value), floor) if gap else 0.0


@dataclass(frozen=True)
class _Point:
    """One comparison: an entry or a direction."""

    line: Line
    step: float
    index: tuple[int, ...] | None
    analytic: float
    numeric: Estimate
    error: float


def entry_by_entry(
    outputs: Outputs, name: str, leaf: Array, gradient: Array, rounding: float, v: Array, tolerance: Tolerance
) -> Row:
    """Compare every entry of `gradient` with the numeric derivative with respect to that entry of `leaf`.

    Parameters
    ----------
    rounding : what float64 leaves in an entry of `gradient`.
    """
    scale = typical(leaf)
    points = []
    for index in np.ndindex(leaf.shape):
        line, h = element_line(outputs, leaf, index), step(max(scale, abs(float(leaf[index]))))
        analytic, numeric = float(gradient[index]), estimate(line, v, h)
        points.append(_Point(line, h, index, analytic, numeric, tolerance.error(analytic, numeric, rounding)))
    return _judge(name, _plural(leaf.size, "entry", "entries"), points, v, rounding, tolerance)


def along_directions(
    outputs: Outputs,
    name: str,
    pairs: Sequence[tuple[Array, Array]],
    rounding: float,
    v: Array,
    directions: int,
    tolerance: Tolerance,
    rng: np.random.Generator,
) -> Row:
    """Compare <gradient, u> with the numeric derivative along random unit directions u.

    Parameters
    ----------
    pairs : (leaf, gradient) of the arrays that move at once, each in proportion to its typical magnitude.
    """
    leaves, gradients = [leaf for leaf, _ in pairs], [gradient for _, gradient in pairs]
    points = []
    for _ in range(directions):
        moves = [typical(leaf) * rng.standard_normal(leaf.shape) for leaf in leaves]
        length = math.hypot(*(float(np.linalg.norm(move)) for move in moves)) or 1.0
        unit = [move / length for move in moves]
        line, h = direction_line(outputs, leaves, unit), step(length)
        analytic = sum(float(np.vdot(gradient, u)) for gradient, u in zip(gradients, unit, strict=True))
        numeric = estimate(line, v, h)
        points.append(_Point(line, h, None, analytic, numeric, tolerance.error(analytic, numeric, rounding)))
    return _judge(name, _plural(directions, "direction", "directions"), points, v, rounding, tolerance)


def _judge(name: str, checked: str, points: list[_Point], v: Array, rounding: float, tolerance: Tolerance) -> Row:
    """Look closer where the two disagree, the worst first, until one is certainly wrong."""
    settled = [point for point in points if point.error <= tolerance.rtol]
    doubtful = [point for point in points if not point.error <= tolerance.rtol]
    for point in sorted(doubtful, key=lambda point: -point.error):
        numeric = refine(point.line, v, point.step)
        error = tolerance.error(point.analytic, numeric, rounding)
        if numeric.rough:
            return Row(name, checked, point.index, point.analytic, point.numeric.value, point.error, ROUGH)
        if not error <= tolerance.rtol:
            return Row(name, checked, point.index, point.analytic, numeric.value, error, WRONG)
        settled.append(replace(point, numeric=numeric, error=error))
    if not settled:
        return Row(name, checked, None, None, None, 0.0, OK)
    worst = max(settled, key=lambda point: point.error)
    return Row(name, checked, worst.index, worst.analytic, worst.numeric.value, worst.error, OK)


def _plural(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
