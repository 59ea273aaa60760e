"""Layer scale: a learned factor for each channel of a residual branch."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

from numpy_vit.tree import Array, Cache, Params


def init(dim: int, value: float = 1e-5, dtype: DTypeLike = np.float32) -> Params:
    """Return gamma (D,) filled with `value`."""
    return {"gamma": np.full(dim, value, dtype)}


def forward(params: Params, x: Array) -> tuple[Array, Cache]:
    """Return y = γ x.

    Parameters
    ----------
    params : gamma (D,)
    x : (..., D)

    Source: Touvron et al. 2021 (CaiT), equation 4.
    """
    return x * params["gamma"], (params, x)


def backward(dy: Array, cache: Cache) -> tuple[Array, Params]:
    """Return dx and the gradient of gamma.

    With n for a row (all leading axes together):

    (1) y_ni = γ_i x_ni  ⇒  dx_ni = γ_i dy_ni
    (2) dγ_i = Σ_n dy_ni x_ni
    """
    params, x = cache
    D = x.shape[-1]
    dgamma = np.einsum("ni,ni->i", dy.reshape(-1, D), x.reshape(-1, D))  # (2)
    return dy * params["gamma"], {"gamma": dgamma}  # (1)
