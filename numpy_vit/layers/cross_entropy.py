"""The cross-entropy of a softmax, for class indices or soft targets."""

from __future__ import annotations

import numpy as np

from numpy_vit.tree import Array, Cache

_REDUCTIONS = ("mean", "sum", "none")


def forward(
    logits: Array,
    targets: Array,
    label_smoothing: float = 0.0,
    weights: Array | None = None,
    reduction: str = "mean",
) -> tuple[Array, Cache]:
    """Return -Σ_k t_k log softmax(z)_k of each sample, or their weighted sum or mean.

    Parameters
    ----------
    logits : (B, K)
    targets : class indices (B,) of an integer type, or target distributions (B, K) of a float type
    label_smoothing : ε; the target becomes (1 - ε) t + ε/K, over all classes including the true one
    weights : (B,), one weight a sample; the mean divides by their sum
    reduction : "mean", "sum" or "none"

    Returns
    -------
    loss : 0-d, or (B,) where nothing is reduced

    Raises
    ------
    ValueError : shapes that do not fit, a class index outside [0, K), label smoothing outside [0, 1], an unknown
        reduction, or a mean of samples whose weights sum to zero.

    Source: PyTorch's cross_entropy; label smoothing Szegedy et al. 2016, section 7.
    """
    if reduction not in _REDUCTIONS:
        raise ValueError(f"reduction is one of {', '.join(_REDUCTIONS)}, not {reduction!r}")
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"label_smoothing lies in [0, 1], not {label_smoothing}")
    t = _distribution(targets, logits, label_smoothing)
    shifted = logits - logits.max(axis=-1, keepdims=True)
    exp = np.exp(shifted)
    total = exp.sum(axis=-1, keepdims=True)
    log_p = shifted - np.log(total)  # never log of a probability: that is log(0) at large logits
    log_p[t == 0] = 0  # a class of logit -inf that nobody asks for: 0 · log 0 is 0, not NaN
    losses = -np.einsum("bk,bk->b", t, log_p)
    factor = _sample_factors(weights, losses, reduction)
    loss = losses * factor
    return (loss if reduction == "none" else loss.sum()), (t, exp / total, factor)


def backward(dloss: Array | float, cache: Cache) -> Array:
    """Return dlogits.

    With p = softmax(z), S = Σ_k t_k (1 for a distribution) and f_b the sample's weight in the reduction
    (1/B in a plain mean):

    (1) log p_k = z_k - log Σ_j exp z_j  ⇒  ∂ log p_k/∂z_j = δ_kj - p_j
    (2) ℓ = -Σ_k t_k log p_k             ⇒  ∂ℓ/∂z_j = S p_j - t_j
    (3) loss = Σ_b f_b ℓ_b               ⇒  dz_bj = dloss f_b (S_b p_bj - t_bj): the only division by B there is
    """
    t, p, factor = cache
    dlogits: Array = p * t.sum(axis=-1, keepdims=True)
    dlogits -= t  # (2)
    dlogits *= (np.asarray(dloss, p.dtype) * factor)[:, None]  # (3)
    return dlogits


def _distribution(targets: Array, logits: Array, label_smoothing: float) -> Array:
    B, K = logits.shape
    if np.issubdtype(targets.dtype, np.integer):
        if targets.shape != (B,):
            raise ValueError(f"class indices {targets.shape} do not fit logits {logits.shape}: one a sample, ({B},)")
        if targets.size and not (targets.min() >= 0 and targets.max() < K):
            raise ValueError(f"class indices {targets.min()} to {targets.max()} do not fit {K} classes, 0 to {K - 1}")
        t = np.zeros((B, K), logits.dtype)
        t[np.arange(B), targets] = 1
    elif targets.shape != logits.shape:
        raise ValueError(f"soft targets {targets.shape} have to have the shape of the logits, {logits.shape}")
    else:
        t = targets.astype(logits.dtype)
    if label_smoothing:
        t *= 1 - label_smoothing
        t += label_smoothing / K
    return t


def _sample_factors(weights: Array | None, losses: Array, reduction: str) -> Array:
    if weights is not None and weights.shape != losses.shape:
        raise ValueError(f"sample weights {weights.shape} do not fit {losses.shape[0]} samples")
    factor: Array = np.ones_like(losses) if weights is None else weights.astype(losses.dtype)
    if reduction != "mean":
        return factor
    total = float(factor.sum())
    if total == 0:
        raise ValueError(f"{len(losses)} samples with weights that sum to zero have no mean: leave such a batch out")
    factor /= total
    return factor
