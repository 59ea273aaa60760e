"""The normal distribution function in the form 2Φ(x) - 1 = erf(x/√2): the erf that NumPy lacks."""

from __future__ import annotations

import numpy as np

from numpy_vit.tree import Array

# erf(x/√2) = tanh(x P(x²)) with a polynomial P, constant term first: the tanh form of GELU, whose P is
# √(2/π) (1 + 0.044715 x²), carried on until float32 sees no difference.  scripts/fit_gelu.py computed the numbers.
_TANH = (
    7.978839638e-01, 3.633562000e-02, -3.436841802e-05, -5.481669883e-05, 3.905779220e-06, -1.293192524e-07,
    1.711917202e-09,
)  # fmt: skip

# That P would need dozens of terms in float64.  There the upper tail Q(a) = 1 - Φ(a) = exp(-a²/2) G(a) is taken, in
# which G is a polynomial in t = 1/(1 + p a) to within rounding (the form is Hastings 1955, sheet 61).
_P = 0.2
_TAIL = (
    -1.17604977912495456e-12, 0.0797884561655790936, 0.0797884531967398105, 0.076596978292542876,
    0.0702129591829280074, 0.0610317432172283591, 0.0497087753038202888, 0.03810283279941248,
    0.0229037106700896801, 0.0267668616792842126, -0.03378401789465782, 0.118162605930924061,
    -0.276546245028587957, 0.531129580634500832, -0.844620552849530487, 1.07935490013553849,
    -1.10189814127891635, 0.878387196729077892, -0.527098937243839746, 0.227914162865815842,
    -0.0668273869630798155, 0.0118992132493458477, -0.000973148793039546557,
)  # fmt: skip


def erf_root2(x: Array, out: Array) -> None:
    """Write erf(x/√2) = 2Φ(x) - 1 of float32 (error 2.6e-7) or float64 (a rounding error) numbers into `out`.

    A square that overflows is as good as any large one: whoever calls this ignores the warning.
    """
    (_by_tail if x.itemsize == 8 else _by_tanh)(x, out)


def _by_tanh(x: Array, out: Array) -> None:
    _horner(_TANH, x * x, out)
    out *= x
    np.tanh(out, out=out)


def _by_tail(x: Array, out: Array) -> None:
    a = np.abs(x)
    _horner(_TAIL, 1 / (1 + _P * a), out)
    out *= -2 * np.exp(-0.5 * a * a)
    out += 1
    np.copysign(out, x, out=out)


def _horner(coefficients: tuple[float, ...], x: Array, out: Array) -> None:
    *lower, second, highest = coefficients
    np.multiply(x, highest, out=out)
    out += second
    for coefficient in reversed(lower):
        out *= x
        out += coefficient
