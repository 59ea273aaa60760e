"""The gated MLP of DINOv2's giant: silu(gate) times value."""

from __future__ import annotations

from types import ModuleType

import numpy as np
from numpy.typing import DTypeLike

from numpy_vit.layers import dropout, linear, silu
from numpy_vit.layers.recording import Note, ignore
from numpy_vit.tree import Array, Cache, Params


def init(dim: int, hidden: int, rng: np.random.Generator, dtype: DTypeLike = np.float32) -> Params:
    """Return fc1 (D -> 2F: first the gate's F rows, then the value's) and fc2 (F -> D)."""
    return {"fc1": linear.init(dim, 2 * hidden, rng, dtype=dtype), "fc2": linear.init(hidden, dim, rng, dtype=dtype)}


def forward(
    params: Params,
    x: Array,
    act: ModuleType = silu,
    drop: float = 0.0,
    rng: np.random.Generator | None = None,
    note: Note = ignore,
) -> tuple[Array, Cache]:
    """Return fc2(act(g) v) with [g, v] = fc1(x), with dropout after the product and at the end.

    Parameters
    ----------
    params : fc1 (2F rows), fc2
    x : (..., D)
    act : the gate's activation

    Returns
    -------
    y : (..., D)

    Source: Shazeer 2020, equation 6; timm's SwiGLUPacked, DINOv2's w12 and w3.
    """
    x, c_fc1 = linear.forward(params["fc1"], x)  # (..., 2F)
    note("fc1", x)
    hidden = x.shape[-1] // 2
    gate, value = x[..., :hidden], x[..., hidden:]  # each (..., F)
    gate, c_act = act.forward(gate)
    note("act", gate)
    x, c_drop1 = dropout.forward(gate * value, drop, rng)
    x, c_fc2 = linear.forward(params["fc2"], x)  # (..., D)
    note("fc2", x)
    x, c_drop2 = dropout.forward(x, drop, rng)
    return x, (act, c_fc1, gate, value, c_act, c_drop1, c_fc2, c_drop2)


def backward(dy: Array, cache: Cache) -> tuple[Array, Params]:
    """Return dx and the gradients: forward upside-down.

    (1) y = drop(W₃ h + b₃)            ⇒  dh, dW₃, db₃ of the linear layer
    (2) h = s v under the dropout      ⇒  ds = v dh,  dv = s dh
    (3) s = act(g)                     ⇒  dg = act'(g) ds
    (4) [g, v] = W₁₂ x + b₁₂           ⇒  d[g, v] = [dg, dv], then dx, dW₁₂, db₁₂
    """
    act, c_fc1, gate, value, c_act, c_drop1, c_fc2, c_drop2 = cache
    dx = dropout.backward(dy, c_drop2)
    dx, dfc2 = linear.backward(dx, c_fc2)  # (1)
    dx = dropout.backward(dx, c_drop1)
    dvalue = dx * gate  # (2)
    dgate = act.backward(dx * value, c_act)  # (2), (3)
    dx, dfc1 = linear.backward(np.concatenate([dgate, dvalue], axis=-1), c_fc1)  # (4)
    return dx, {"fc1": dfc1, "fc2": dfc2}
