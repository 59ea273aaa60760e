"""Exponential moving average of the parameters, on flat buffers."""

from __future__ import annotations

import numpy as np

from numpy_vit.tree import Array

CHUNK = 65536  # entries a pass works on; both buffers and the scratch then stay in the L2 cache


def update(average: Array, params: Array, decay: float) -> None:
    """Move the average towards the parameters, in place.

        a ← a + (1 − decay)(p − a)         which is decay·a + (1 − decay)·p with less rounding

    Parameters
    ----------
    average : (n,), changed in place; start it as a copy of the parameters.
    params : (n,), the dtype of `average`; not changed.
    decay : between 0 (a copy) and 1 (no change).

    Raises
    ------
    ValueError : buffers of different lengths or dtypes, or a decay outside [0, 1].

    Source: Polyak & Juditsky (1992), "Acceleration of Stochastic Approximation by Averaging", in the
    exponential form of tf.train.ExponentialMovingAverage.
    """
    if average.ndim != 1 or average.shape != params.shape or average.dtype != params.dtype:
        raise ValueError(
            f"the average is a flat buffer like the parameters, not {average.dtype} {average.shape} "
            f"for {params.dtype} {params.shape}"
        )
    _check(decay)
    scratch = np.empty(min(CHUNK, average.size), average.dtype)
    for start in range(0, average.size, CHUNK):
        a, p = average[start : start + CHUNK], params[start : start + CHUNK]
        s = np.subtract(p, a, out=scratch[: a.size])
        s *= 1.0 - decay
        a += s


def decay_at(step: int, decay: float) -> float:
    """Return min(decay, (1 + step)/(10 + step)): a decay that lets the average forget its beginning.

    `step` is the number of updates made so far, 0 at the first.  Source: the `num_updates` argument of
    tf.train.ExponentialMovingAverage.

    Raises
    ------
    ValueError : a negative step, or a decay outside [0, 1].
    """
    if step < 0:
        raise ValueError(f"step is {step}, it must not be negative")
    _check(decay)
    return min(decay, (1.0 + step) / (10.0 + step))


def _check(decay: float) -> None:
    if not 0.0 <= decay <= 1.0:
        raise ValueError(f"decay is {decay}, it must lie in [0, 1]")
