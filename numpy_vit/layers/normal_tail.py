"""The upper tail of the normal distribution: the erfc that NumPy lacks."""

from __future__ import annotations

import numpy as np

from numpy_vit.tree import Array

# Q(a) = P(Z > a) = erfc(a/√2)/2 = exp(-a²/2) G(a), and G is a polynomial in t = 1/(1 + p a) to within rounding
# (Hastings 1955, sheet 61, has the form; scripts/fit_gelu.py computed the numbers).  Constant term first.
_FARTHEST = {4: 13.0, 8: 37.0}  # by itemsize: further out Q is nothing beside a, and exp would underflow
_P = {4: 0.31, 8: 0.2}
_COEFFICIENTS = {
    4: (
        9.5907092869e-03, 4.1814710408e-02, 4.1159365573e-01, -4.1466536268e-01, 5.9242509896e-01, -1.4075879289e-01,
    ),
    8: (
        -1.17604977912495456e-12, 0.0797884561655790936, 0.0797884531967398105, 0.076596978292542876,
        0.0702129591829280074, 0.0610317432172283591, 0.0497087753038202888, 0.03810283279941248,
        0.0229037106700896801, 0.0267668616792842126, -0.03378401789465782, 0.118162605930924061,
        -0.276546245028587957, 0.531129580634500832, -0.844620552849530487, 1.07935490013553849,
        -1.10189814127891635, 0.878387196729077892, -0.527098937243839746, 0.227914162865815842,
        -0.0668273869630798155, 0.0118992132493458477, -0.000973148793039546557,
    ),
}  # fmt: skip


def distance(x: Array) -> Array:
    """Return |x|, cut off where the tail is nothing beside it; a new array."""
    a = np.abs(x)
    return np.minimum(a, _FARTHEST[x.itemsize], out=a)


def upper_tail(a: Array) -> tuple[Array, Array]:
    """Return Q(a) and exp(-a²/2) for a = distance(x) >= 0.

    Errors: 2e-8 of Q in float32, rounding in float64.
    """
    t = a * _P[a.itemsize]
    t += 1
    np.divide(1, t, out=t)
    *lower, q_coefficient, highest = _COEFFICIENTS[a.itemsize]
    q = t * highest
    q += q_coefficient
    for coefficient in reversed(lower):  # Horner
        q *= t
        q += coefficient
    bell = a * a
    bell *= -0.5
    np.exp(bell, out=bell)
    q *= bell
    return q, bell
