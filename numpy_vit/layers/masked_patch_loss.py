"""The masked autoencoder's loss: the squared error of the predicted pixels, over the removed patches alone."""

from __future__ import annotations

import numpy as np

from numpy_vit.layers import mse
from numpy_vit.tree import Array, Cache

_EPS = 1e-6  # of a patch of one colour


def normalised(patches: Array) -> tuple[Array, Array, Array]:
    """Return patches less their own mean, divided by their own deviation.

    Parameters
    ----------
    patches : (..., P) pixels, P >= 2

    Returns
    -------
    target : (..., P), (patches - mean) / deviation
    mean, deviation : (..., 1); the variance is the unbiased one, over P - 1, and 1e-6 is added inside the root

    Raises
    ------
    ValueError : patches of one number, which have no unbiased variance.

    Source: He et al. 2022, table 1 (d) and the reference code's norm_pix_loss.
    """
    P = patches.shape[-1]
    if P < 2:
        raise ValueError(f"patches {patches.shape} of {P} number have no unbiased variance: take larger patches")
    mean = patches.mean(axis=-1, keepdims=True)
    target = patches - mean
    deviation = np.sqrt(np.vecdot(target, target)[..., None] / (P - 1) + _EPS)
    target /= deviation
    return target, mean, deviation


def forward(prediction: Array, target: Array, mask: Array, denominator: float | None = None) -> tuple[Array, Cache]:
    """Return the mean over each patch's pixels of (prediction - target)², summed over the masked patches and divided.

    Parameters
    ----------
    prediction, target : (B, N, P)
    mask : (B, N), true or 1 where the patch was removed and counts
    denominator : None divides by the number of masked patches; part of a batch is given that of the whole batch, so
        that the parts' losses and gradients add up to the whole one's

    Returns
    -------
    loss : 0-d

    Raises
    ------
    ValueError : shapes that do not fit, a mask of which nothing is true, or a denominator that is not positive.

    Source: He et al. 2022, section 3; the reference code's forward_loss.
    """
    if denominator is not None and not denominator > 0:
        raise ValueError(f"denominator {denominator} has to be positive: the number of masked patches of the batch")
    mean, c_mse = mse.forward(prediction, target, mask)
    share = 1.0 if denominator is None else float(mask.sum()) / denominator
    return mean * share, (share, c_mse)


def backward(dloss: Array | float, cache: Cache) -> Array:
    """Return dprediction.

    With M masked patches here and M̄ the denominator:

    (1) loss = 1/M̄ Σ_n m_n 1/P Σ_i (p_ni - t_ni)² = M/M̄ · mse(p, t, m)
    (2) dp = M/M̄ · dloss · ∂mse/∂p, which is zero for every patch that is visible
    (3) t is made of pixels alone: no parameter lies behind it, and no gradient is wanted
    """
    share, c_mse = cache
    return mse.backward(dloss * share, c_mse)  # (2)
