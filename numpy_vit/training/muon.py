"""Muon for the matrices of the blocks: momentum whose singular values are made equal; AdamW for all else."""

from __future__ import annotations

import math

import numpy as np

from numpy_vit.training import adamw
from numpy_vit.tree import Array

init, update = adamw.init, adamw.update  # of what is no matrix; a matrix uses the first moment m alone

# Of the polynomial a s + b s³ + c s⁵.  Its fifth iterate maps singular values of 0.01 … 1 to about 0.7 … 1.2, and small
# ones grow by 3.4445 a time: nearer to 1 would take more products and trains no better (Jordan et al.).
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
STEPS = 5
_RMS = 0.2  # of AdamW's usual step: with it, both take the same learning rate and decay (Liu et al. 2025, section 2.2)
_EPS = 1e-7


def takes(key: str, array: Array) -> bool:
    """Say whether a parameter is stepped as a matrix: the weights inside the blocks, of the encoder or a decoder."""
    return array.ndim == 2 and "blocks." in key


def update_matrix(
    matrix: Array,
    grad: Array,
    moment: Array,
    lr: float,
    momentum: float = 0.95,
    weight_decay: float = 0.0,
) -> None:
    """Make one step of Muon in place, with the arithmetic of PyTorch's torch.optim.Muon.

        M ← μM + (1 − μ)G                the momentum
        O ← U Vᵀ, nearly, where (1 − μ)G + μM = U S Vᵀ        Nesterov's look ahead, its singular values made 1
        W ← (1 − lr·λ)W − lr·0.2·√max(rows, columns)·O

    A gradient of a weight matrix is dominated by few directions; AdamW, which scales every entry by itself, keeps most
    of that.  With equal singular values the rare directions move as far as the frequent ones.

    Parameters
    ----------
    matrix : (rows, columns), changed in place.
    grad : the same shape; not changed.
    moment : M, the same shape, zero before the first step; changed in place.
    momentum : μ above.
    weight_decay : λ above.

    Raises
    ------
    ValueError : shapes that differ, no matrix, or a momentum out of range.

    Source: Jordan et al. (2024), "Muon: An optimizer for hidden layers in neural networks"; the factor Liu et al.
    (2025), "Muon is scalable for LLM training", equation 4; torch.optim.Muon with adjust_lr_fn="match_rms_adamw".
    """
    if matrix.ndim != 2 or not matrix.shape == grad.shape == moment.shape:
        raise ValueError(f"Muon steps one matrix, not {matrix.shape} with {grad.shape} and {moment.shape}")
    if not 0.0 <= momentum < 1.0:
        raise ValueError(f"momentum is {momentum}, it must lie in [0, 1)")
    moment *= momentum
    moment += (1.0 - momentum) * grad
    step = orthogonal((1.0 - momentum) * grad + momentum * moment)
    if weight_decay != 0.0:
        matrix *= 1.0 - lr * weight_decay
    step *= lr * _RMS * math.sqrt(max(matrix.shape))
    matrix -= step


def orthogonal(matrix: Array) -> Array:
    """Return a matrix with the singular vectors of `matrix` and singular values near 1, without decomposing it.

    (1) X = U S Vᵀ  ⇒  (X Xᵀ) X = U S³ Vᵀ: an odd polynomial of X is that polynomial of its singular values
    (2) X ← aX + (bA + cA²)X with A = X Xᵀ: a s + b s³ + c s⁵ for each of them, five times
    (3) X starts at length 1, so that no singular value exceeds 1; of a wide and a tall X, A is the smaller one

    Parameters
    ----------
    matrix : (rows, columns), not changed

    Source: Jordan et al. (2024); the iteration is Newton's and Schulz's (Higham 2008, section 8.3).
    """
    a, b, c = COEFFICIENTS
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x / max(float(np.linalg.norm(x)), _EPS)  # (3)
    for _ in range(STEPS):
        gram = x @ x.T  # A
        polynomial = c * (gram @ gram)
        polynomial += b * gram
        x = a * x + polynomial @ x  # (2)
    return x.T if tall else x
