"""Clipping a gradient by its norm."""

from __future__ import annotations

import math

import numpy as np

from numpy_vit.tree import Array

CHUNK = 8192  # entries squared at once: too few for OpenBLAS's dot to use threads, whose number changes bits


def global_norm(grads: Array) -> float:
    """Return the Euclidean norm of a flat buffer, (n,), accumulated in float64.

    A float32 buffer of any length gives the norm to about 1e-14, and values up to 3e38 do not overflow.
    """
    if grads.ndim != 1:
        raise ValueError(f"the norm is that of a flat buffer, not of shape {grads.shape}")
    scratch = np.empty(min(CHUNK, grads.size), np.float64)
    squares = []
    for start in range(0, grads.size, CHUNK):
        chunk = grads[start : start + CHUNK]
        wide = scratch[: chunk.size]
        wide[...] = chunk
        squares.append(float(np.dot(wide, wide)))
    return math.sqrt(sum(squares))


def clip_by_global_norm(grads: Array, max_norm: float) -> float:
    """Scale a flat gradient in place so that its norm is at most `max_norm`; return the norm it had.

        coef = max_norm / (norm + 1e-6);  g ← coef·g where coef < 1

    A norm of inf or nan turns the gradients into zeros and nans, as in PyTorch: look at what is returned.

    Parameters
    ----------
    grads : (n,), changed in place.
    max_norm : above 0.

    Raises
    ------
    ValueError : `grads` is not flat, or `max_norm` is not above 0.

    Source: Pascanu, Mikolov & Bengio (2013), "On the difficulty of training recurrent neural networks",
    Algorithm 1; the 1e-6 is that of torch.nn.utils.clip_grad_norm_.
    """
    if not max_norm > 0.0:
        raise ValueError(f"max_norm is {max_norm}, it must be above 0")
    norm = global_norm(grads)
    coef = max_norm / (norm + 1e-6)
    if not coef >= 1.0:  # true of nan as well
        grads *= coef
    return norm
