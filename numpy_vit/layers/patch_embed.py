"""The patch projection: a convolution whose stride is its kernel, computed as one matrix product."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

from numpy_vit.layers import initial, layernorm, linear, optional, patchify
from numpy_vit.tree import Array, Cache, Params


def init(
    in_chans: int,
    dim: int,
    patch: tuple[int, int],
    rng: np.random.Generator,
    bias: bool = True,
    norm: bool = False,
    dtype: DTypeLike = np.float32,
    pre_norm: bool = False,
) -> Params:
    """Return proj.weight (D, C, py, px), proj.bias (D,) and, where wanted, norm (D,) and pre_norm (C·py·px,)."""
    params: Params = {"proj": {"weight": initial.uniform_fan_in((dim, in_chans, *patch), rng, dtype)}}
    if bias:
        params["proj"]["bias"] = np.zeros(dim, dtype)
    if norm:
        params["norm"] = layernorm.init(dim, dtype)
    if pre_norm:
        params["pre_norm"] = layernorm.init(in_chans * patch[0] * patch[1], dtype)
    return params


def forward(params: Params, images: Array, eps: float = 1e-6) -> tuple[Array, Cache]:
    """Project every patch to a token: y_n = W vec(patch_n) + b, with a norm after it, or before it, where there is one.

    Parameters
    ----------
    params : proj.weight (D, C, py, px), optionally proj.bias (D,), norm and pre_norm
    images : (B, C, Y, X)
    eps : of the norms

    Returns
    -------
    tokens : (B, N, D)

    Raises
    ------
    ValueError : another number of channels than the weight has, or an image that the patch does not divide.

    Source: Dosovitskiy et al. 2021, equation 1; the names are timm's PatchEmbed.
    """
    weight = params["proj"]["weight"]
    D, C, py, px = weight.shape
    if images.ndim != 4 or images.shape[1] != C:
        raise ValueError(f"images {images.shape} have to be (B, {C}, Y, X) for a projection {weight.shape}")
    patches, c_patches = patchify.forward(images, (py, px))  # (B, N, C·py·px)
    patches, c_pre_norm = optional.forward(layernorm, params.get("pre_norm"), patches, eps)
    tokens, c_proj = linear.forward({**params["proj"], "weight": weight.reshape(D, -1)}, patches)  # (B, N, D)
    tokens, c_norm = optional.forward(layernorm, params.get("norm"), tokens, eps)
    return tokens, (weight.shape, c_patches, c_pre_norm, c_proj, c_norm)


def backward(dtokens: Array, cache: Cache, input_grad: bool = True) -> tuple[Array | None, Params]:
    """Return dimages (None where `input_grad` is false: nobody reads it in training) and the gradients.

    With k for an entry (c, row, column) of a patch and π for the permutation that patchify is:

    (1) the norm of the tokens, where there is one, came last  ⇒  its backward comes first
    (2) tokens = patches W_(D, k)ᵀ + b is a linear layer: its dW_(D, k) read as (D, C, py, px) is dW
    (3) the norm of the pixels, where there is one, came before the projection  ⇒  its backward comes after it
    (4) patches = π(images)  ⇒  dimages = π⁻¹(dpatches)
    """
    weight_shape, c_patches, c_pre_norm, c_proj, c_norm = cache
    grads: Params = {}
    dtokens, grads["norm"] = optional.backward(dtokens, c_norm)  # (1)
    grads["proj"] = linear.parameter_gradients(dtokens, c_proj)
    grads["proj"]["weight"] = grads["proj"]["weight"].reshape(weight_shape)  # (2)
    if not input_grad and not c_pre_norm:
        return None, grads
    dpatches = linear.input_gradient(dtokens, c_proj)
    dpatches, grads["pre_norm"] = optional.backward(dpatches, c_pre_norm)  # (3)
    return patchify.backward(dpatches, c_patches) if input_grad else None, grads  # (4)
