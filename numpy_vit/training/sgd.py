"""Stochastic gradient descent with momentum, on flat buffers."""

from __future__ import annotations

import numpy as np

from numpy_vit.tree import Array

CHUNK = 65536  # entries a pass works on; parameters, gradients, buffer and scratch then stay in the L2 cache


def init(params: Array) -> dict[str, Array]:
    """Return the state before the first step: {"step": (), "momentum": (n,)}, all zero.

    `params` is the flat buffer, (n,); the momentum has its dtype, the step count is int64.
    """
    return {"step": np.zeros((), np.int64), "momentum": np.zeros_like(params)}


def update(
    params: Array,
    grads: Array,
    state: dict[str, Array],
    lr: float,
    momentum: float = 0.0,
    nesterov: bool = False,
    weight_decay: float = 0.0,
) -> None:
    """Make one step of SGD in place, with PyTorch's arithmetic (dampening 0).

        g ← g + λp
        b ← μb + g                      b starts at zero, so the first b is the gradient
        p ← p − lr·b                    or, with Nesterov's momentum, p − lr·(g + μb)

    Parameters
    ----------
    params : (n,), changed in place.
    grads : (n,), the dtype of `params`; not changed.
    state : of `init`, changed in place: the step count rises by one.  Without momentum b is not touched.
    momentum, weight_decay : μ and λ above.

    Raises
    ------
    ValueError : buffers of different lengths or dtypes, or a hyper-parameter out of range.

    Source: Sutskever, Martens, Dahl & Hinton (2013), "On the importance of initialization and momentum in
    deep learning", in the form where lr multiplies the buffer and not the gradient that enters it.
    """
    buffer = state["momentum"]
    _check(params, grads, buffer)
    if not 0.0 <= momentum < 1.0:
        raise ValueError(f"momentum is {momentum}, it must lie in [0, 1)")
    if nesterov and momentum == 0.0:
        raise ValueError("nesterov needs a momentum above 0")
    state["step"] += 1
    scratch = np.empty(min(CHUNK, params.size), params.dtype)
    decayed = np.empty_like(scratch)
    for start in range(0, params.size, CHUNK):
        part = slice(start, start + CHUNK)
        p, g, b = params[part], grads[part], buffer[part]
        s = scratch[: p.size]
        if weight_decay != 0.0:
            g = np.multiply(p, weight_decay, out=decayed[: p.size])
            g += grads[part]
        direction = g
        if momentum != 0.0:
            b *= momentum
            b += g
            direction = b
        if nesterov:
            direction = np.multiply(b, momentum, out=s)
            direction += g
        np.multiply(direction, lr, out=s)
        p -= s


def _check(params: Array, grads: Array, buffer: Array) -> None:
    if params.ndim != 1 or grads.shape != params.shape or buffer.shape != params.shape:
        raise ValueError(
            f"SGD works on flat buffers of one length, not on parameters {params.shape}, "
            f"gradients {grads.shape}, momentum {buffer.shape}"
        )
    if grads.dtype != params.dtype or buffer.dtype != params.dtype:
        raise ValueError(
            f"SGD needs one dtype, not parameters {params.dtype}, gradients {grads.dtype}, momentum {buffer.dtype}"
        )
