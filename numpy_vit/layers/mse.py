"""The mean squared error, over all tokens or over those of a mask."""

from __future__ import annotations

import numpy as np

from numpy_vit.tree import Array, Cache


def forward(prediction: Array, target: Array, mask: Array | None = None) -> tuple[Array, Cache]:
    """Return the mean over each token's entries of (prediction - target)², averaged over the tokens of the mask.

    Parameters
    ----------
    prediction, target : (..., D)
    mask : (...), the weight of each token, as a rule 1 where it counts and 0 where it does not; None for all 1

    Returns
    -------
    loss : 0-d

    Raises
    ------
    ValueError : shapes that do not fit, or a mask that sums to zero.

    Source: He et al. 2022 (MAE), forward_loss of the reference code.
    """
    if prediction.shape != target.shape:
        raise ValueError(f"prediction {prediction.shape} and target {target.shape} have to have one shape")
    if mask is None:
        mask = np.ones(prediction.shape[:-1], prediction.dtype)
    if mask.shape != prediction.shape[:-1]:
        raise ValueError(f"the mask {mask.shape} has to have one entry a token, {prediction.shape[:-1]}")
    total = mask.sum(dtype=prediction.dtype)
    if total == 0:
        raise ValueError("the mask sums to zero: no token counts, and the mean over them does not exist")
    difference = prediction - target.astype(prediction.dtype, copy=False)
    each = np.einsum("...i,...i->...", difference, difference) / prediction.shape[-1]
    share = mask.astype(prediction.dtype) / total
    return (each * share).sum(), (difference, share)


def backward(dloss: Array | float, cache: Cache) -> Array:
    """Return dprediction.

    With m the mask and M = Σ_n m_n:

    (1) loss = Σ_n m_n/M · 1/D Σ_i (p_ni - t_ni)²
    (2) dp_ni = dloss · m_n/M · 2/D (p_ni - t_ni)
    """
    difference, share = cache
    factor = np.asarray(dloss, difference.dtype) * share * (2 / difference.shape[-1])
    dprediction: Array = difference * factor[..., None]  # (2)
    return dprediction
