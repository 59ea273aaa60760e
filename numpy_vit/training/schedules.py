"""Learning-rate schedules: pure functions of the step.

Step 0 is the first update and total − 1 the last.  All begin with a linear warm-up over `warmup` updates,

    lr(t) = base·(t + 1)/warmup         t < warmup

so no update is wasted on a rate of 0 and lr(warmup − 1) = base.  What follows starts there, at
t₀ = max(warmup − 1, 0): base is used once, `final` is reached at the last update, and warm-ups of 0 and of 1
are the same.  A run of a single update uses base.
"""

from __future__ import annotations

import math
from collections.abc import Callable


def warmup_cosine(step: int, total: int, base: float, warmup: int = 0, final: float = 0.0) -> float:
    """Return the rate of a warm-up followed by half a cosine from `base` down to `final`.

        lr(t) = final + ½(base − final)(1 + cos(π·(t − t₀)/(total − 1 − t₀)))     t ≥ t₀ = max(warmup − 1, 0)

    Parameters
    ----------
    step : 0 for the first update, total − 1 for the last.
    total : number of updates.
    base : the highest rate, reached at step warmup − 1 (at step 0 without warm-up).
    warmup : number of updates of the linear warm-up, fewer than `total`.
    final : the rate of the last update.

    Raises
    ------
    ValueError : a step outside the run, a warm-up as long as the run, a negative rate.

    Source: Loshchilov & Hutter (2017), "SGDR: Stochastic Gradient Descent with Warm Restarts", eq. 5, without
    restarts.
    """
    _check(step, total, base, warmup, final)
    if step < warmup:
        return base * ((step + 1) / warmup)
    share = 0.5 * (1.0 + math.cos(math.pi * _progress(step, total, warmup)))
    return share * base + (1.0 - share) * final


def warmup_linear(step: int, total: int, base: float, warmup: int = 0, final: float = 0.0) -> float:
    """Return the rate of a warm-up followed by a straight line from `base` down to `final`.

        lr(t) = base + (final − base)·(t − t₀)/(total − 1 − t₀)         t ≥ t₀ = max(warmup − 1, 0)

    Parameters and errors are those of `warmup_cosine`.
    """
    _check(step, total, base, warmup, final)
    if step < warmup:
        return base * ((step + 1) / warmup)
    progress = _progress(step, total, warmup)
    return (1.0 - progress) * base + progress * final


def warmup_constant(step: int, total: int, base: float, warmup: int = 0, final: float = 0.0) -> float:
    """Return the rate of a warm-up followed by `base` to the end.

    Parameters and errors are those of `warmup_cosine`; `final` is there for a common call, without effect.
    """
    _check(step, total, base, warmup, final)
    return base * ((step + 1) / warmup) if step < warmup else base


SCHEDULES: dict[str, Callable[[int, int, float, int, float], float]] = {
    "cosine": warmup_cosine,
    "linear": warmup_linear,
    "constant": warmup_constant,
}


def _progress(step: int, total: int, warmup: int) -> float:
    begin = max(warmup - 1, 0)
    length = total - 1 - begin
    return (step - begin) / length if length > 0 else 0.0  # a run of one update stays at its beginning


def _check(step: int, total: int, base: float, warmup: int, final: float) -> None:
    if total < 1:
        raise ValueError(f"total is {total}, a run has at least 1 update")
    if not 0 <= step < total:
        raise ValueError(f"step is {step}, a run of {total} updates has steps 0 to {total - 1}")
    if not 0 <= warmup < total:
        raise ValueError(f"warmup is {warmup}, it must lie between 0 and {total - 1} in a run of {total} updates")
    if not (base >= 0.0 and final >= 0.0):
        raise ValueError(f"rates must not be negative: base is {base}, final is {final}")
