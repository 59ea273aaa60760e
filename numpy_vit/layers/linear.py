"""The linear layer y = x Wᵀ + b, with PyTorch's (out, in) weight."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

from numpy_vit.layers import initial
from numpy_vit.tree import Array, Cache, Params


def init(
    in_features: int, out_features: int, rng: np.random.Generator, bias: bool = True, dtype: DTypeLike = np.float32
) -> Params:
    """Return weight (out, in) drawn with deviation 0.02, and bias (out,) of zeros where `bias` is true.

    Source: timm's init_weights_vit_timm.
    """
    params: Params = {"weight": initial.normal((out_features, in_features), rng, 0.02, dtype)}
    if bias:
        params["bias"] = np.zeros(out_features, dtype)
    return params


def forward(params: Params, x: Array) -> tuple[Array, Cache]:
    """Apply y = x Wᵀ + b to the last axis.

    Parameters
    ----------
    params : weight (out, in) and, optionally, bias (out,)
    x : (..., in)

    Returns
    -------
    y : (..., out)

    Raises
    ------
    ValueError : the last axis of x is not `in`.
    """
    weight = params["weight"]
    if x.shape[-1] != weight.shape[1]:
        raise ValueError(f"x has {x.shape[-1]} features, the weight {weight.shape} takes {weight.shape[1]}")
    rows = x.reshape(-1, x.shape[-1])  # one 2-D product: NumPy multiplies a 3-D array matrix by matrix
    y = rows @ weight.T
    if "bias" in params:
        y += params["bias"]
    return y.reshape(*x.shape[:-1], len(weight)), (params, x)


def backward(dy: Array, cache: Cache) -> tuple[Array, Params]:
    """Return dx and the gradients of weight and bias.

    With i for a row (all leading axes together), o for out and n for in:

    (1) y_io = Σ_n x_in W_on + b_o
    (2) ∂y_io/∂x_in = W_on      ⇒  dx_in = Σ_o dy_io W_on,  dx = dy W
    (3) ∂y_io/∂W_on = x_in      ⇒  dW_on = Σ_i dy_io x_in,  dW = dyᵀ x: summed over every row of the batch
    (4) ∂y_io/∂b_o  = 1         ⇒  db_o  = Σ_i dy_io
    """
    return input_gradient(dy, cache), parameter_gradients(dy, cache)


def input_gradient(dy: Array, cache: Cache) -> Array:
    """Return dx alone: step (2) of `backward`."""
    params, x = cache
    rows = dy.reshape(-1, dy.shape[-1])
    dx: Array = (rows @ params["weight"]).reshape(x.shape)  # (2)
    return dx


def parameter_gradients(dy: Array, cache: Cache) -> Params:
    """Return the parameters' gradients alone, for a first layer whose input needs none: steps (3) and (4)."""
    params, x = cache
    rows = dy.reshape(-1, dy.shape[-1])
    grads: Params = {"weight": rows.T @ x.reshape(-1, x.shape[-1])}  # (3)
    if "bias" in params:
        grads["bias"] = np.ones(len(rows), rows.dtype) @ rows  # (4); by BLAS, in a third of np.sum's time
    return grads
