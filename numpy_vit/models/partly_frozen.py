"""A Vision Transformer whose first parts are frozen: they compute neither caches nor gradients."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from numpy_vit.layers import encoder
from numpy_vit.layers.recording import Take, ignore, into
from numpy_vit.models import vit
from numpy_vit.models.vit import init, predict
from numpy_vit.tree import Array, Cache, Params

__all__ = ["Config", "backward", "forward", "init", "predict"]  # parameters and predictions are a ViT's


@dataclass(frozen=True)
class Config(vit.Config):
    """A Vision Transformer's sizes and choices, and how many of its first blocks are frozen, with all before them.

    Raises
    ------
    ValueError : more frozen blocks than there are.
    """

    frozen_blocks: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.frozen_blocks <= self.depth:
            raise ValueError(f"frozen_blocks {self.frozen_blocks} has to lie in 0 to {self.depth}, the depth")


def forward(
    params: Params,
    images: Array,
    config: Config,
    rng: np.random.Generator | None = None,
    record: dict[str, Array] | None = None,
) -> tuple[Array, Cache]:
    """Return the logits (B, K); what is frozen keeps no cache, and its blocks run without dropout, as in `predict`.

    Parameters
    ----------
    params, images : as in vit.forward
    rng : draws the patches that are dropped, and dropout and drop path of the parts that learn; None turns them off
    record : receives the intermediates of the parts that learn
    """
    note, first = into(record), config.frozen_blocks
    forms, blocks = config.block_forms(record is not None), config.blocks
    x, _ = vit.embed(params, images, config, rng, ignore)  # (B, T+N, D)
    x = encoder.predict(params["blocks"][:first], x, forms[:first], blocks[:first])
    x, c_blocks = encoder.forward(params["blocks"][first:], x, forms[first:], blocks[first:], rng, note)
    x, c_head = vit.head(params, x, config, rng, note)  # (B, K)
    return x, (first, c_blocks, c_head)


def backward(dlogits: Array, cache: Cache, take: Take | None = None) -> tuple[None, Params]:
    """Return the gradients of the parts that learn, under the parameters' names.

    (1) logits = head(x_L),  x_L = block_L(… block_{f+1}(x_f)): backwards as in a ViT, down to dx_f
    (2) x_f follows from the images and from parameters that stay as they are  ⇒  dx_f is not used

    Parameters
    ----------
    take : as in vit.backward
    """
    first, c_blocks, c_head = cache

    def renumbered(place: str, grads: Params) -> None:
        if take is not None:
            take(f"blocks.{first + int(place.removeprefix('blocks.'))}", grads)

    dx, grads = vit.head_backward(dlogits, c_head)  # (1)
    _, dblocks = encoder.backward(dx, c_blocks, take and renumbered)  # (2)
    grads["blocks"] = {str(first + i): dblock for i, dblock in enumerate(dblocks)}
    return None, vit.hand_over(grads, take)
