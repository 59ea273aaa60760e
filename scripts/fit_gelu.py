"""Compute the coefficients of layers/normal.py: erf without SciPy.

    pip install mpmath numpy
    python scripts/fit_gelu.py

float32: erf(x/√2) = tanh(x P(x²)).  P is the polynomial that makes the largest error of GELU least, found with Lawson's
reweighted least squares; beyond 4, where rounding takes most of the error that we allow, an error counts twice.

float64: the upper tail of the normal distribution is Q(a) = exp(-a²/2) G(a), where G falls slowly from 1/2 and has no
large derivative anywhere on a >= 0.  With t = 1/(1 + p a) the half-line becomes (0, 1], on which a polynomial in t
fits G (the form of Hastings, Approximations for Digital Computers, 1955, sheet 61): interpolation in the Chebyshev
nodes of t for a <= 38, computed with 60 digits.
"""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np

mp.mp.dps = 60


def scaled_tail(a: mp.mpf) -> mp.mpf:
    """G(a) = Q(a) exp(a^2/2)."""
    return mp.erfc(a / mp.sqrt(2)) / 2 * mp.exp(a * a / 2)


def chebyshev(p: mp.mpf, farthest: float, degree: int) -> list[mp.mpf]:
    """Coefficients of G in t, constant term first."""
    low, high = 1 / (1 + p * farthest), mp.mpf(1)
    count = degree + 1
    angles = [mp.pi * (2 * k + 1) / (2 * count) for k in range(count)]
    nodes = [(low + high) / 2 + (high - low) / 2 * mp.cos(angle) for angle in angles]
    matrix = mp.matrix(count, count)
    for row, t in enumerate(nodes):
        for power in range(count):
            matrix[row, power] = t**power
    return list(mp.lu_solve(matrix, mp.matrix([scaled_tail((1 / t - 1) / p) for t in nodes])))


def minimax(terms: int, farthest: float = 6.5, rounds: int = 3000) -> tuple[float, np.ndarray]:
    """P with so many terms, constant term first, and the largest error of GELU, the part beyond 4 doubled."""
    x = np.linspace(1e-3, farthest, 6000)
    tail = np.array([0.5 * math.erfc(a / math.sqrt(2)) for a in x])
    wanted = 0.5 * (np.log1p(-tail) - np.log(tail))  # artanh(1 - 2Q)
    # d(x Φ) = x · 2 Φ Q d(artanh); below 1 the error of Φ itself counts, which the slope sees
    weight = np.maximum(x, 1) * 2 * (1 - tail) * tail * np.where(x > 4, 2, 1)
    basis = x[:, None] ** (2 * np.arange(terms) + 1)
    scale = np.abs(basis).max(axis=0)
    lawson = np.ones_like(x)
    best, found = np.inf, np.zeros(terms)
    for _ in range(rounds):
        root = np.sqrt(lawson) * weight
        fit = np.linalg.lstsq(basis / scale * root[:, None], wanted * root, rcond=None)[0] / scale
        error = np.abs(basis @ fit - wanted) * weight
        if error.max() < best:
            best, found = error.max(), fit
        lawson *= (error / error.max() + 1e-4) ** 0.7
        lawson /= lawson.max()
    return best, found


if __name__ == "__main__":
    largest, single = minimax(7)
    print(f"float32: 7 terms, largest error {largest:.1e}; constant term first")
    print(",\n".join(f"    {c:.9e}" for c in single))
    print("float64: p = 0.2, degree 22; constant term first")
    print(",\n".join(f"    {mp.nstr(c, 18)}" for c in chebyshev(mp.mpf("0.2"), 38, 22)))
