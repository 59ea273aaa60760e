"""The distilled transformer of Touvron et al. 2021, "Training data-efficient image transformers" (DeiT).

A Vision Transformer with a second token beside the class token, and a head for each: one learns from the labels, the
other from a teacher.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike

from numpy_vit.layers import dropout, encoder, initial, layernorm, linear, optional, position_table
from numpy_vit.layers.recording import Note, Take, ignore, into
from numpy_vit.models import vit
from numpy_vit.models.vit import attention_gradients, attention_weights
from numpy_vit.tree import Array, Cache, Params

__all__ = ["Config", "attention_gradients", "attention_weights", "backward", "forward", "init", "predict"]


@dataclass(frozen=True)
class Config(vit.Config):
    """A Vision Transformer's sizes and choices; what two tokens and two heads do not go with is refused.

    Raises
    ------
    ValueError : another pooling than by token, registers, a norm after pooling, or a pre-logits layer.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        fixed = {"class_token": True, "reg_tokens": 0, "global_pool": "token", "pre_logits": None, "fc_norm": None}
        for name, value in fixed.items():
            if getattr(self, name) != value:
                raise ValueError(f"a distilled model has {name} {value!r}, not {getattr(self, name)!r}: leave it out")

    @property
    def num_prefix_tokens(self) -> int:
        """T, the class token and the distillation token."""
        return 2

    @property
    def read_tokens(self) -> int:
        """How many leading tokens the heads read: both."""
        return 2


def init(config: Config, rng: np.random.Generator, dtype: DTypeLike = np.float32) -> Params:
    """Return a model's parameters before training, under timm's names: a ViT's, dist_token and head_dist."""
    params = vit.init(config, rng, dtype)
    params["dist_token"] = initial.normal((1, 1, config.embed_dim), rng, 1e-6, dtype)
    if config.pos_embed == "learned" and not config.no_embed_class:  # one row more than a ViT of one token has
        params |= position_table.init(config.num_patches + 2, config.embed_dim, rng, dtype)
    if config.num_classes:
        params["head_dist"] = linear.init(config.embed_dim, config.num_classes, rng, dtype=dtype)
    return params


def forward(
    params: Params,
    images: Array,
    config: Config,
    rng: np.random.Generator | None = None,
    record: dict[str, Array] | None = None,
) -> tuple[tuple[Array, Array], Cache]:
    """Return the logits of both heads.

    Parameters
    ----------
    params : as from `init`, in the dtype in which everything is computed
    images : (B, C, Y, X)
    rng : draws dropout and drop path; None turns them off
    record : where given, receives every intermediate under the name of timm's module that computes it, for every
        token; without it the last block computes no more than is read

    Returns
    -------
    logits : (B, K) of the class token's head and (B, K) of the distillation token's

    Raises
    ------
    ValueError : images of another shape than the configuration says.

    Source: Touvron et al. 2021, section 4; timm's VisionTransformerDistilled in training.
    """
    note = into(record)
    x, c_embed = vit.embed(params, images, config, rng, note)  # (B, 2+N, D)
    x, c_blocks = encoder.forward(params["blocks"], x, config.block_forms(record is not None), config.blocks, rng, note)
    logits, c_heads = _heads(params, x, config, rng, note)  # two of (B, K)
    return logits, (c_embed, c_blocks, c_heads)


def backward(
    dlogits: tuple[Array, Array],
    cache: Cache,
    input_grad: bool = False,
    take: Take | None = None,
    record: dict[str, Array] | None = None,
) -> tuple[Array | None, Params]:
    """Return dimages (None unless `input_grad` is true) and the gradients, under the parameters' names.

    (1) two heads read two tokens of norm(x_L): their gradients arrive in two rows, zero in those of the patches
    (2) x_L = encoder(x_0): dx_0 and the blocks' gradients
    (3) x_0 = [cls, dist, patches] + positions: gradients of tokens, table and projection are summed over the batch

    Parameters
    ----------
    take : where given, receives the gradients part by part, and none are returned, as in vit.backward
    record : where given, receives the gradients of intermediates, as in vit.backward
    """
    c_embed, c_blocks, c_heads = cache
    dx, grads = _heads_backward(dlogits, c_heads)  # (1)
    dx, grads["blocks"] = encoder.backward(dx, c_blocks, take, note=into(record))  # (2)
    dimages, dembed = vit.embed_backward(dx, c_embed, input_grad)  # (3)
    return dimages, vit.hand_over(grads | dembed, take)


def predict(params: Params, images: Array, config: Config) -> Array:
    """Return the mean of both heads' logits (B, K) without keeping what a backward would need."""
    x = encoder.predict(
        params["blocks"],
        vit.embed(params, images, config, None, ignore)[0],  # a name for it here would keep it alive
        config.block_forms(every_token=False),
        config.blocks,
    )
    (labels, teacher), _ = _heads(params, x, config, None, ignore)
    return (labels + teacher) / 2


def _heads(
    params: Params, x: Array, config: Config, rng: np.random.Generator | None, note: Note
) -> tuple[tuple[Array, Array], Cache]:
    """Tokens to both heads' logits."""
    x, c_norm = optional.forward(layernorm, params.get("norm"), x, config.norm_eps)
    note("norm", x)
    token, c_drop = dropout.forward(x[:, 0], config.drop_rate, rng)  # (B, D)
    labels, c_head = optional.forward(linear, params.get("head"), token)  # (B, K)
    note("head", labels)
    token, c_drop_dist = dropout.forward(x[:, 1], config.drop_rate, rng)  # (B, D)
    teacher, c_dist = optional.forward(linear, params.get("head_dist"), token)  # (B, K)
    note("head_dist", teacher)
    return (labels, teacher), (x.shape, c_norm, c_drop, c_head, c_drop_dist, c_dist)


def _heads_backward(dlogits: tuple[Array, Array], cache: Cache) -> tuple[Array, Params]:
    shape, c_norm, c_drop, c_head, c_drop_dist, c_dist = cache
    dlabels, dteacher = dlogits
    grads: Params = {}
    dx = np.zeros(shape, dlabels.dtype)
    dtoken, grads["head_dist"] = optional.backward(dteacher, c_dist)
    dx[:, 1] = dropout.backward(dtoken, c_drop_dist)
    dtoken, grads["head"] = optional.backward(dlabels, c_head)
    dx[:, 0] = dropout.backward(dtoken, c_drop)
    dx, grads["norm"] = optional.backward(dx, c_norm)
    return dx, grads
