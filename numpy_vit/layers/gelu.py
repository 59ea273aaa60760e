"""The exact GELU, x Φ(x), with Φ the normal distribution function."""

from __future__ import annotations

import math

import numpy as np

from numpy_vit.layers import elementwise, normal_tail
from numpy_vit.tree import Array, Cache

_SQRT_TAU = math.sqrt(2 * math.pi)


def forward(x: Array) -> tuple[Array, Cache]:
    """Return y = x Φ(x) = x/2 (1 + erf(x/√2)).

    Parameters
    ----------
    x : any shape, float32 (error below 5e-7 on [-8, 8]) or float64 (below 1e-15 of max(1, |x|))

    Source: Hendrycks and Gimpel 2016, equation 1; PyTorch's nn.GELU().
    """
    y, slope = elementwise.value_and_slope(_value_and_slope, x)
    # The slope, not x, goes into the cache: it shares tail and exponential with y, and makes backward one product.
    # Measured on 3.1 million float32: y alone 19 ms, both 46 ms; backward would compute all but y's sum once more.
    return y, (slope,)


def backward(dy: Array, cache: Cache) -> Array:
    """Return dx.

    With φ(x) = exp(-x²/2)/√(2π), a = |x| and the upper tail Q(a) = 1 - Φ(a):

    (1) y = x Φ(x) = max(x, 0) - a Q(a): the small tail is subtracted, nothing cancels
    (2) Φ' = φ  ⇒  y' = Φ(x) + x φ(x)
    (3) for x < 0: y' = Q(a) - a φ(a) =: s;  for x ≥ 0: y' = 1 - Q(a) + a φ(a) = 1 - s
    (4) dx = y' dy
    """
    (slope,) = cache
    dx: Array = dy * slope  # (4)
    return dx


def _value_and_slope(x: Array) -> tuple[Array, Array]:
    a = normal_tail.distance(x)
    q, bell = normal_tail.upper_tail(a)
    s = a * bell
    s *= -1 / _SQRT_TAU
    s += q  # (3)
    a *= q
    value = np.maximum(x, 0)
    value -= a  # (1)
    return value, np.where(x < 0, s, 1 - s)  # (2), (3)
