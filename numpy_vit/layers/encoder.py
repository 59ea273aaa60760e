"""The stack of blocks: each one's output is the next one's input."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

import numpy as np
from numpy.typing import DTypeLike

from numpy_vit.layers import attention
from numpy_vit.layers import block as pre_norm_block
from numpy_vit.layers.block import Config
from numpy_vit.layers.recording import Note, Take, below, ignore
from numpy_vit.tree import Array, Cache, Params


def init(
    dim: int, hidden: int, configs: Sequence[Config], rng: np.random.Generator, dtype: DTypeLike = np.float32
) -> list[Params]:
    """Return the plain parameters of each block: no layer scale, no q and k norms."""
    return [pre_norm_block.init(dim, hidden, config, rng, dtype=dtype) for config in configs]


def forward(
    params: list[Params],
    x: Array,
    blocks: Sequence[ModuleType],
    configs: Sequence[Config],
    rng: np.random.Generator | None = None,
    note: Note = ignore,
) -> tuple[Array, Cache]:
    """Send the tokens through block 0, block 1, …

    Parameters
    ----------
    params : one tree a block
    x : (B, N, D)
    blocks, configs : each block's module, such as block or post_norm_block, and its configuration

    Returns
    -------
    y : (B, N, D), or (B, R, D) where the last block is a readout_block

    Source: Dosovitskiy et al. 2021, equations 2 and 3.
    """
    caches = []
    for i, (block_params, block, config) in enumerate(zip(params, blocks, configs, strict=True)):
        x, cache = block.forward(block_params, x, config, rng, below(note, f"blocks.{i}"))
        note(f"blocks.{i}", x)
        caches.append((block, cache))
    return x, (caches,)


def backward(
    dy: Array, cache: Cache, take: Take | None = None, place: str = "blocks", note: Note = ignore
) -> tuple[Array, list[Params]]:
    """Return dx and the gradients of each block.

    (1) x_l = block_l(x_{l-1}), l = 1 … L  ⇒  dx_{l-1} and block l's gradients from dx_l, the last block first

    Parameters
    ----------
    take : where given, receives each block's gradients ("blocks.3", grads) as soon as they are known, and none are
        returned: then only those of one block exist at a time
    place : where the stack lies in the tree of parameters
    note : receives the gradients of intermediates under the names that forward gives these: "blocks.3", "blocks.3.attn"
    """
    (caches,) = cache
    grads: list[Params] = []
    dx = dy
    for i, (block, c_block) in reversed(list(enumerate(caches))):
        note(f"blocks.{i}", dx)
        dx, dblock = block.backward(dx, c_block, below(note, f"blocks.{i}"))  # (1)
        if take is None:
            grads.insert(0, dblock)
        else:
            take(f"{place}.{i}", dblock)
    return dx, grads


def attention_weights(cache: Cache) -> list[Array]:
    """Return each block's attention weights (B, H, N, N); the blocks have to be whole: no readout_block among them."""
    (caches,) = cache
    return [attention.weights(block.attention_cache(c_block)) for block, c_block in caches]


def attention_gradients(cache: Cache, record: dict[str, Array], place: str = "blocks") -> list[Array]:
    """Return the gradient of each block's attention weights (B, H, N, N), from what `backward` gave its note."""
    (caches,) = cache
    return [
        attention.weights_backward(record[f"{place}.{i}.attn"], block.attention_cache(c_block))
        for i, (block, c_block) in enumerate(caches)
    ]


def predict(params: list[Params], x: Array, blocks: Sequence[ModuleType], configs: Sequence[Config]) -> Array:
    """Return what `forward` does, and let go of each block's cache before the next block: memory is that of one."""
    for block_params, block, config in zip(params, blocks, configs, strict=True):
        x = block.forward(block_params, x, config)[0]
    return x
