"""AdamW: Adam with decoupled weight decay, on flat buffers."""

from __future__ import annotations

from numpy_vit.training import adam
from numpy_vit.tree import Array


def init(params: Array) -> dict[str, Array]:
    """Return the state before the first step, Adam's: {"step": (), "m": (n,), "v": (n,)}, all zero."""
    return adam.init(params)


def update(
    params: Array,
    grads: Array,
    state: dict[str, Array],
    lr: float,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.01,
) -> None:
    """Make one step of AdamW in place, with PyTorch's arithmetic.

        p ← (1 − lr·λ)p                 the decay never enters the moments
        p ← Adam's step, without decay

    The decay is multiplied by lr, as in PyTorch; the paper and big_vision multiply it by the schedule alone,
    so a λ from there is to be divided by the base lr.

    Parameters
    ----------
    params : (n,), changed in place.
    grads : (n,), the dtype of `params`; not changed.
    state : of `init`, changed in place: the step count rises by one.
    beta1, beta2, eps : as in `adam.update`.
    weight_decay : λ above.

    Raises
    ------
    ValueError : buffers of different lengths or dtypes, or a hyper-parameter out of range.

    Source: Loshchilov & Hutter (2019), "Decoupled Weight Decay Regularization", Algorithm 2.
    """
    adam.check(params, grads, state, beta1, beta2)  # before anything is changed
    if weight_decay != 0.0:
        params *= 1.0 - lr * weight_decay
    adam.update(params, grads, state, lr, beta1, beta2, eps)
