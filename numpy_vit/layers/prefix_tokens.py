"""Learned tokens in front of the patches: the class token, DeiT's distillation token, registers."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

from numpy_vit.layers import initial
from numpy_vit.tree import Array, Cache, Params

_ORDER = ("cls_token", "dist_token", "reg_token")


def init(
    dim: int, class_token: bool, registers: int, rng: np.random.Generator, dtype: DTypeLike = np.float32
) -> Params:
    """Return cls_token (1, 1, D) and reg_token (1, R, D), each only where wanted, drawn with deviation 1e-6."""
    params: Params = {}
    if class_token:
        params["cls_token"] = initial.normal((1, 1, dim), rng, 1e-6, dtype)
    if registers:
        params["reg_token"] = initial.normal((1, registers, dim), rng, 1e-6, dtype)
    return params


def forward(params: Params, x: Array) -> tuple[Array, Cache]:
    """Put the tokens in front of every sample's patches: [class, distillation, registers, patches].

    Parameters
    ----------
    params : any of cls_token (1, 1, D), dist_token (1, 1, D) and reg_token (1, R, D); other entries are not looked at
    x : (B, N, D)

    Returns
    -------
    y : (B, T+N, D)

    Source: Dosovitskiy et al. 2021, equation 1; registers Darcet et al. 2024; the order is timm's.
    """
    B, N, D = x.shape
    tokens = [params[name] for name in _ORDER if name in params]
    sizes = {name: params[name].shape[1] for name in _ORDER if name in params}
    first = sum(sizes.values())
    y = np.empty((B, first + N, D), x.dtype)
    if tokens:
        y[:, :first] = np.concatenate(tokens, axis=1)
    y[:, first:] = x
    return y, (sizes,)


def backward(dy: Array, cache: Cache) -> tuple[Array, Params]:
    """Return dx and the tokens' gradients.

    (1) y_b = [cls, reg, x_b] for every sample b  ⇒  dx_b is the rest of dy_b
    (2) the same token stands in every sample     ⇒  its gradient is the sum over b of its rows of dy
    """
    (sizes,) = cache
    grads: Params = {}
    start = 0
    for name, size in sizes.items():
        grads[name] = dy[:, start : start + size].sum(axis=0, keepdims=True)  # (2)
        start += size
    return dy[:, start:], grads  # (1)
