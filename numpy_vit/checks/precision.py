"""How exact a number format is, and how far apart two correct implementations may be in it.

Two correct models differ because each rounds in its own order.  How much of that reaches a tensor depends on the
model: normalising a nearly constant token, or a sharp softmax, amplifies it.  So the amplification is measured: our
own model in float32 lies some n roundings from the same model in float64, and a correct implementation in a format of
rounding e has to lie within

    (BASE + FACTOR · n) · e · scale

of the float64 result, scale being that tensor's largest entry.  n is the largest of the tensors up to this one, since
a tensor can be right by luck.  Gradients, sums over all tokens in which much cancels, get GRADIENT times that.

Calibrated on random timm models in all four formats: scripts/calibrate_compare.py prints the largest share of this that
correct models use.
"""

from __future__ import annotations

import math

import numpy as np

from numpy_vit.tree import Array

# distance from 1 to the next number
PRECISIONS = {"float64": 2.0**-52, "float32": 2.0**-23, "bfloat16": 2.0**-7, "float16": 2.0**-10}
HALVES = ("bfloat16", "float16")
BASE, FACTOR, GRADIENT = 4.0, 4.0, 3.0


def rounded(array: Array, dtype: str) -> Array:
    """Return the numbers that `dtype` can hold nearest to these, in their own dtype; wider formats change nothing."""
    if dtype == "float16":
        with np.errstate(over="ignore"):
            return array.astype(np.float16).astype(array.dtype)
    if dtype != "bfloat16":
        return array
    bits = array.astype(np.float32).view(np.uint32)
    even = (bits >> np.uint32(16)) & np.uint32(1)
    cut = (bits + np.uint32(0x7FFF) + even) & np.uint32(0xFFFF0000)  # round half to even
    return np.where(np.isfinite(array), cut.view(np.float32), array).astype(array.dtype)


def largest(array: Array) -> float:
    """Return the largest magnitude; infinity where something is not a number, 0 for an empty array."""
    if not array.size:
        return 0.0
    top = float(np.max(np.abs(array)))
    return top if math.isfinite(top) else math.inf


def distance(a: Array, b: Array) -> float:
    """Return the largest difference of two arrays; infinity where shapes differ or something is not finite."""
    if a.shape != b.shape:
        return math.inf
    with np.errstate(invalid="ignore", over="ignore"):
        return largest(np.subtract(a, b, dtype=np.float64))


class Allowance:
    """What rounding explains, tensor after tensor in the order of computation."""

    def __init__(self, dtype: str) -> None:
        self.unit = PRECISIONS[dtype]
        self.noise = 0.0

    def next(self, exact: Array, single: Array, scale: float | None = None) -> float:
        """Return the largest difference from `exact` that rounding explains in the tensor that comes next.

        Parameters
        ----------
        exact, single : our model's tensor in float64 and in float32
        scale : the magnitude of the terms whose sum this is, where it is not that of the sum
        """
        scale = largest(exact) if scale is None else scale
        if scale == 0.0 or not math.isfinite(scale):
            return 0.0
        mine = distance(single, exact) / (PRECISIONS["float32"] * scale)
        if math.isfinite(mine):
            self.noise = max(self.noise, mine)
        return (BASE + FACTOR * self.noise) * self.unit * scale
