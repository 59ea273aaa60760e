"""Compute the coefficients of layers/normal_tail.py: erfc without SciPy.

    pip install mpmath numpy
    python scripts/fit_gelu.py

The upper tail of the normal distribution is Q(a) = exp(-a^2/2) G(a), where G falls slowly from 1/2 and has no
large derivative anywhere on a >= 0.  With t = 1/(1 + p a) the half-line becomes (0, 1], on which a polynomial in t
fits G (the form of Hastings, Approximations for Digital Computers, 1955, sheet 61):

- float64: interpolation in the Chebyshev nodes of t for a <= 38, computed with 60 digits;
- float32: the minimax polynomial of the error in Q itself, found with Lawson's reweighted least squares.
"""

from __future__ import annotations

import mpmath as mp
import numpy as np

mp.mp.dps = 60


def scaled_tail(a: mp.mpf) -> mp.mpf:
    """G(a) = Q(a) exp(a^2/2)."""
    return mp.erfc(a / mp.sqrt(2)) / 2 * mp.exp(a * a / 2)


def chebyshev(p: mp.mpf, farthest: float, degree: int) -> list[mp.mpf]:
    low, high = 1 / (1 + p * farthest), mp.mpf(1)
    count = degree + 1
    angles = [mp.pi * (2 * k + 1) / (2 * count) for k in range(count)]
    nodes = [(low + high) / 2 + (high - low) / 2 * mp.cos(angle) for angle in angles]
    matrix = mp.matrix(count, count)
    for row, t in enumerate(nodes):
        for power in range(count):
            matrix[row, power] = t**power
    return list(mp.lu_solve(matrix, mp.matrix([scaled_tail((1 / t - 1) / p) for t in nodes])))


def minimax(p: float, farthest: float, degree: int, rounds: int = 400) -> tuple[float, np.ndarray]:
    a = np.linspace(0.0, farthest, 4001)
    g = np.array([float(scaled_tail(mp.mpf(x))) for x in a])
    t, weight = 1 / (1 + p * a), np.exp(-a * a / 2)
    basis = t[:, None] ** np.arange(degree + 1) * weight[:, None]
    lawson = np.full_like(a, 1 / len(a))
    best, found = np.inf, np.zeros(degree + 1)
    for _ in range(rounds):
        root = np.sqrt(lawson)
        fit = np.linalg.lstsq(basis * root[:, None], g * weight * root, rcond=None)[0]
        residual = np.abs(basis @ fit - g * weight)
        if residual.max() < best:
            best, found = residual.max(), fit
        lawson *= residual
        lawson /= lawson.sum()
    return best, found


if __name__ == "__main__":
    error, single = minimax(0.31, 7.0, 5)
    print(f"float32: p = 0.31, degree 5, largest error of Q {error:.1e}; constant term first")
    print(",\n".join(f"    {c:.10e}" for c in single))
    print("float64: p = 0.2, degree 22; constant term first")
    print(",\n".join(f"    {mp.nstr(c, 18)}" for c in chebyshev(mp.mpf("0.2"), 38, 22)))
