"""The block's MLP: linear, activation, linear."""

from __future__ import annotations

from types import ModuleType

import numpy as np
from numpy.typing import DTypeLike

from numpy_vit.layers import dropout, gelu, linear
from numpy_vit.layers.recording import Note, ignore
from numpy_vit.tree import Array, Cache, Params


def init(dim: int, hidden: int, rng: np.random.Generator, dtype: DTypeLike = np.float32) -> Params:
    """Return fc1 (D -> F) and fc2 (F -> D)."""
    return {"fc1": linear.init(dim, hidden, rng, dtype=dtype), "fc2": linear.init(hidden, dim, rng, dtype=dtype)}


def forward(
    params: Params,
    x: Array,
    act: ModuleType = gelu,
    drop: float = 0.0,
    rng: np.random.Generator | None = None,
    note: Note = ignore,
) -> tuple[Array, Cache]:
    """Return fc2(act(fc1(x))), with dropout after the activation and at the end.

    Parameters
    ----------
    params : fc1, fc2
    x : (..., D)
    act : the activation's module, such as gelu, gelu_tanh or quick_gelu

    Returns
    -------
    y : (..., D)

    Source: Dosovitskiy et al. 2021, section 3.1; timm's Mlp.
    """
    x, c_fc1 = linear.forward(params["fc1"], x)  # (..., F)
    note("fc1", x)
    x, c_act = act.forward(x)
    note("act", x)
    x, c_drop1 = dropout.forward(x, drop, rng)
    x, c_fc2 = linear.forward(params["fc2"], x)  # (..., D)
    note("fc2", x)
    x, c_drop2 = dropout.forward(x, drop, rng)
    return x, (act, c_fc1, c_act, c_drop1, c_fc2, c_drop2)


def backward(dy: Array, cache: Cache) -> tuple[Array, Params]:
    """Return dx and the gradients: forward upside-down.

    (1) y = drop(v),  v = W₂ h + b₂    ⇒  dv, then dh, dW₂, db₂ of the linear layer
    (2) h = drop(act(u))               ⇒  du = act'(u) dh under the dropout's mask
    (3) u = W₁ x + b₁                  ⇒  dx, dW₁, db₁
    """
    act, c_fc1, c_act, c_drop1, c_fc2, c_drop2 = cache
    dx = dropout.backward(dy, c_drop2)
    dx, dfc2 = linear.backward(dx, c_fc2)  # (1)
    dx = dropout.backward(dx, c_drop1)
    dx = act.backward(dx, c_act)  # (2)
    dx, dfc1 = linear.backward(dx, c_fc1)  # (3)
    return dx, {"fc1": dfc1, "fc2": dfc2}
