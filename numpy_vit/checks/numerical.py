"""The numeric derivative of <v, y> along a line, and how far it can be trusted.

A line is a function t -> y(t), all outputs as one vector, where t moves one entry of one input or everything
along a direction.  The derivative at t = 0 comes from a fourth-order central stencil:

    (1)  y(h) - y(-h)    = 2h y' + (1/3) h³ y''' + (1/60) h⁵ y⁽⁵⁾ + ...        Taylor; even orders cancel
    (2)  y(2h) - y(-2h)  = 4h y' + (8/3) h³ y''' + (32/60) h⁵ y⁽⁵⁾ + ...
    (3)  8·(1) - (2)     = 12h y' - (2/5) h⁵ y⁽⁵⁾ + ...                        h³ cancels too
    (4)  y'              = [8 (y(h) - y(-h)) - (y(2h) - y(-2h))] / 12h + h⁴ y⁽⁵⁾/30

The differences are taken output by output and only then multiplied by v: outputs that do not move cancel
exactly, where the difference of two rounded sums <v, y> would keep the rounding of all of them.

The choice of h: rounding contributes about √(2·8² + 2·1²)/12 · eps |y|/h ≈ eps |y|/h, truncation
h⁴ |y⁽⁵⁾|/30.  Their sum is smallest at h⁵ = 7.5 eps |y| / |y⁽⁵⁾|: h ≈ 1.1e-3 where y varies on the scale 1,
and leaves a relative error near 1e-12.  So h = 1.3e-3 times the typical magnitude of the input, and a number of
30 bits, because then x ± h and x ± 2h are (nearly) free of rounding.  Where y varies on another scale `refine`
looks for a better h.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from numpy_vit.tree import Array

Outputs: TypeAlias = Callable[[], Array]  # the forward at the present inputs, all outputs as one vector
Line: TypeAlias = Callable[[float], Array]  # t -> all outputs

EPS = 2.0**-52
# The bits are 1010...101: where a forward casts to float32, x ± h is then rounded at every scale of h, which shows.
STEP = 0b101010101010101010101 * 2.0**-30
LEVELS = range(-20, 4)  # `refine` tries the steps h·2^level
SMALLEST = slice(0, 5)  # levels at which rounding dominates truncation
MIDDLE = slice(10, 17)  # steps of 1e-6 to 6e-5 of the input: above float32's resolution, and no truncation as a rule
ROUGH = 1e5  # bad conditioning amplifies float64's rounding by up to ~1e3, float32 inside by 5e8


class Estimate(NamedTuple):
    """A numeric derivative, a bound on its own error, the step, and whether y is too rough to have one."""

    value: float
    noise: float
    step: float
    rough: bool = False


def typical(leaf: Array) -> float:
    """Return the median magnitude of the non-zero entries, 1 where all are zero.

    The median, since one outlier (a mask's -1e9, say) must not set the step of all other entries.
    """
    magnitudes = np.abs(leaf[leaf != 0])
    return float(np.median(magnitudes)) if magnitudes.size else 1.0


def step(scale: float) -> float:
    """Return the h for an input of magnitude `scale`: STEP times the power of two nearest to it."""
    return STEP * 2.0 ** round(math.log2(scale)) if 0 < scale < math.inf else STEP


def element_line(outputs: Outputs, leaf: Array, index: tuple[int, ...]) -> Line:
    """Return the line that moves leaf[index]; `leaf` is restored after each evaluation."""
    start = leaf[index]

    def line(t: float) -> Array:
        leaf[index] = start + t
        try:
            return outputs()
        finally:
            leaf[index] = start

    return line


def direction_line(outputs: Outputs, leaves: Sequence[Array], directions: Sequence[Array]) -> Line:
    """Return the line that moves each of `leaves` along its direction and restores them after each evaluation."""
    starts = [leaf.copy() for leaf in leaves]

    def line(t: float) -> Array:
        for leaf, start, direction in zip(leaves, starts, directions, strict=True):
            leaf[...] = start + t * direction
        try:
            return outputs()
        finally:
            for leaf, start in zip(leaves, starts, strict=True):
                leaf[...] = start

    return line


def derivative(line: Line, h: float) -> Array:
    """Return dy/dt at t = 0 for every output, by formula (4)."""
    slopes: Array = (8.0 * (line(h) - line(-h)) - (line(2 * h) - line(-2 * h))) / (12.0 * h)
    return slopes


def estimate(line: Line, v: Array, h: float) -> Estimate:
    """Return <v, dy/dt> from four evaluations, its noise being what rounding alone would make.

    Rounding is estimated as 8 eps |v∘y| / h over the outputs that move: 8, since y is a chain of roundings.
    To this comes the slope at which doubling the input changes all outputs by eps, which deep saturation leaves.
    Truncation, and cancellation inside the forward, are left to `refine`.
    """
    plus = line(h)
    with np.errstate(invalid="ignore"):  # inf - inf, outside the forward's domain
        inner, outer = plus - line(-h), line(2 * h) - line(-2 * h)
        value = v @ (8.0 * inner - outer) / (12.0 * h)
    moved = (inner != 0) | (outer != 0)
    rounding = 8.0 * EPS * float(np.linalg.norm((v * plus)[moved])) / h
    return Estimate(float(value), rounding + STEP * EPS * float(np.linalg.norm(v * plus)) / h, h)


def refine(line: Line, v: Array, h: float) -> Estimate:
    """Return <v, dy/dt> at the most trustworthy of many steps, with its noise measured.

    Neighbouring steps h and 2h disagree by what either gets wrong: by h⁴ where truncation rules, by 1/h where
    rounding does.  From the smallest steps, where it rules for certain, rounding is measured as rho/h.  The
    step taken is the one with the least max(disagreement, rho/h), and ten times that is the noise.  Steps beyond
    the first that contradicts the smaller ones are not trusted, however well they agree with each other: across
    a narrow bend they all see the slope of the straight lines on either side.

    `rough` says that the outputs jitter 1e5 times more than float64 explains: no noise can excuse an error then.
    """
    steps = np.array([h * 2.0**level for level in LEVELS])
    size, unit = float(np.linalg.norm(v * line(0.0))), float(np.linalg.norm(v))
    with np.errstate(invalid="ignore"):
        differences = np.array([v @ (line(t) - line(-t)) for t in [*steps, 2 * steps[-1]]])
        values = (8.0 * differences[:-1] - differences[1:]) / (12.0 * steps)
        spread = np.abs(np.diff(values))  # between steps[k] and steps[k + 1]
    jitter = spread * steps[:-1]
    # A difference of zero proves nothing below eps |y|, nor below eps: log(1 + 1e-17) is 0, its slope is not.
    slope = float(np.median(np.abs(values[SMALLEST]))) * h / STEP  # times the input's magnitude: it is rounded too
    rho = max(float(np.median(jitter[SMALLEST])), EPS * size, EPS * unit, EPS * slope)
    # With both neighbours, so that two values which agree by luck do not win.
    error = np.maximum(np.maximum(spread[:-1], spread[1:]), rho / steps[1:-1])
    trusted = np.isfinite(error) & (np.arange(error.size) < _first_stray(values[1:-1], rho / steps[1:-1]))
    best = int(np.argmin(np.where(trusted, error, math.inf)))
    value, step_taken = float(values[1 + best]), float(steps[1 + best])
    limit = ROUGH * EPS * (max(size, 1e-3 * unit) + abs(value) * h / STEP)
    # float32 inside: y jumps at middle steps and at the smallest steps either jumps too or does not move at all.
    coarse = rho > limit or not np.all(differences[SMALLEST])
    rough = coarse and bool(np.median(jitter[MIDDLE]) > limit)
    return Estimate(value, 10.0 * float(error[best]), step_taken, rough)


def _first_stray(values: Array, rounding: Array) -> int:
    """Return the first k for which values[k] contradicts an earlier value beyond 30 times the latter's rounding."""
    for k in range(1, values.size):
        if not np.all(np.abs(values[k] - values[:k]) <= 30.0 * rounding[:k]):
            return k
    return int(values.size)


def contributions(
    outputs: Outputs, leaf: Array, v: Array, sample: Array, samples: int, indices: Sequence[tuple[int, ...]]
) -> Array:
    """Return the numeric gradient at `indices`, split by the samples that the outputs belong to.

    Parameters
    ----------
    sample : the number of the sample that each output belongs to, of the length of v.
    indices : where; the first one decides how fine the steps are.

    Returns
    -------
    (samples, len(indices)); the sum over the first axis is the gradient.
    """
    parts = np.zeros((samples, len(indices)))
    scale = typical(leaf)
    finer = _suitable(element_line(outputs, leaf, indices[0]), v, step(scale)) / step(scale)
    for column, index in enumerate(indices):
        h = finer * step(max(scale, abs(float(leaf[index]))))
        slopes = derivative(element_line(outputs, leaf, index), h)
        parts[:, column] = np.bincount(sample, weights=v * slopes, minlength=samples)
    return parts


def _suitable(line: Line, v: Array, h: float) -> float:
    plain, best = estimate(line, v, h), refine(line, v, h)
    agree = abs(plain.value - best.value) <= 1e-7 * abs(best.value) + plain.noise + best.noise
    return h if agree else best.step
