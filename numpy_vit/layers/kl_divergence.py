"""The divergence of a softmax from a teacher's, both softened by a temperature: the loss of soft distillation."""

from __future__ import annotations

import math

import numpy as np

from numpy_vit.tree import Array, Cache

_REDUCTIONS = ("mean", "sum", "none")


def forward(
    logits: Array, teacher_logits: Array, temperature: float = 1.0, reduction: str = "mean"
) -> tuple[Array, Cache]:
    """Return T² Σ_k q_k (log q_k - log p_k) of each sample, or their sum or mean.

    p = softmax(z/T) is the student's distribution and q = softmax(teacher's logits/T) the teacher's.  A high T makes
    both flat: p - q shrinks as 1/T, and so does the derivative of z/T.  The factor T² gives the gradient its size back.

    Parameters
    ----------
    logits, teacher_logits : (B, K); the teacher's are constants and get no gradient
    temperature : T
    reduction : "mean" over the samples, "sum" or "none"

    Returns
    -------
    loss : 0-d, or (B,) where nothing is reduced; never negative but for rounding, and 0 where p = q

    Raises
    ------
    ValueError : shapes that differ, a temperature that is not positive, an unknown reduction, or a mean of nothing.

    Source: Hinton et al. 2015, "Distilling the knowledge in a neural network", section 2.
    """
    if reduction not in _REDUCTIONS:
        raise ValueError(f"reduction is one of {', '.join(_REDUCTIONS)}, not {reduction!r}")
    if not 0 < temperature < math.inf:
        raise ValueError(f"temperature has to be positive, not {temperature}: 1 leaves the logits as they are")
    if teacher_logits.shape != logits.shape:
        raise ValueError(f"the teacher's logits {teacher_logits.shape} have to have the student's shape {logits.shape}")
    if reduction == "mean" and not len(logits):
        raise ValueError("no samples have no mean: leave such a batch out")
    log_p = _log_softmax(logits, temperature)
    log_q = _log_softmax(teacher_logits.astype(logits.dtype, copy=False), temperature)
    p, q = np.exp(log_p), np.exp(log_q)
    ratio = np.subtract(log_q, log_p, out=np.zeros_like(q), where=q > 0)  # 0 · log 0 is 0, not NaN
    losses = np.einsum("bk,bk->b", q, ratio) * temperature**2
    factor = 1 / len(losses) if reduction == "mean" else 1.0
    losses *= factor
    return (losses if reduction == "none" else losses.sum()), (p, q, temperature, factor)


def backward(dloss: Array | float, cache: Cache) -> Array:
    """Return dlogits.

    With f the sample's weight in the reduction (1/B in a mean), and log p_k = z_k/T - log Σ_j exp(z_j/T):

    (1) ∂ log p_k/∂z_j = (δ_kj - p_j)/T
    (2) ℓ = T² Σ_k q_k (log q_k - log p_k)  ⇒  ∂ℓ/∂z_j = -T Σ_k q_k (δ_kj - p_j) = T (p_j - q_j), as Σ_k q_k = 1
    (3) loss = Σ_b f ℓ_b                    ⇒  dz_bj = dloss f T (p_bj - q_bj): the only division by B there is
    """
    p, q, temperature, factor = cache
    dlogits: Array = p - q
    dlogits *= temperature * factor  # (2), (3)
    dlogits *= np.asarray(dloss, p.dtype)[..., None]  # (3)
    return dlogits


def _log_softmax(logits: Array, temperature: float) -> Array:
    """Return log softmax(z/T), never as the log of a probability, which may be 0."""
    shifted: Array = (logits - logits.max(axis=-1, keepdims=True)) / temperature
    shifted -= np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return shifted
