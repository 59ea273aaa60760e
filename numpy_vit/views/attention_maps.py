"""Where a model looks: its attention weights as maps over the image's patches.

Shapes: images (B, C, Y, X), L blocks, H heads, T prefix tokens, N patches on a grid of (gy, gx).
"""

from __future__ import annotations

from types import ModuleType

import numpy as np

from numpy_vit.errors import CheckpointError
from numpy_vit.models.vit_config import Config
from numpy_vit.tree import Array, Params


@np.errstate(over="ignore", invalid="ignore")  # weights that went bad are told in one line
def weights(model: ModuleType, params: Params, images: Array, config: Config) -> Array:
    """Return the attention weights (B, L, H, T+N, T+N) of every block: row m says where token m looks.

    Parameters
    ----------
    model : vit or deit
    images : (B, C, Y, X), as the model takes them

    Raises
    ------
    CheckpointError : weights that are not finite, as those of a model that diverged.
    ValueError : a model without blocks, or images that do not fit.
    """
    demand_blocks(config)
    _, cache = model.forward(params, images, config, record={})
    found = np.stack(model.attention_weights(cache), axis=1)
    demand_finite(found, "the attention weights")
    return found


def reader(config: Config) -> str:
    """Return whose attention the maps show: "class token" where the model reads one, and "received" elsewhere.

    A class token that is read, alone or beside others, says what the answer is made of.  Where the model pools the
    patches, by their mean ("avg") or by attention ("map"), a class token may be there and nobody reads it; what tells
    the patches apart is then how much they take from each other.  The pool of "map" has weights of its own, which are
    no block's and are not shown.
    """
    return "class token" if config.class_token and config.global_pool in ("token", "token_avg") else "received"


def maps(weights: Array, config: Config) -> Array:
    """Return the map (B, L, H, gy, gx) of each block and head, which sums to 1.

    The class token's weights on the patches; or, where the model pools the patches, the weight that each patch
    receives from a patch on average.  What goes to prefix tokens is left out, and the rest scaled up to 1.

    Parameters
    ----------
    weights : (B, L, H, T+N, T+N), rows that sum to 1
    """
    T = config.num_prefix_tokens
    seen = weights[..., 0, T:] if reader(config) == "class token" else weights[..., T:, T:].mean(axis=-2)
    return on_grid(seen, config)


def rollout(weights: Array, config: Config) -> Array:
    """Return the map (B, gy, gx) of attention rollout, which sums to 1.

    (1) half of a block's output is its input: A_l = (I + mean over heads of block l's weights) / 2
    (2) what the last tokens are made of: R = A_L … A_2 A_1; each row sums to 1
    (3) the class token's row of it; or, where the model pools the patches, the mean of their rows

    Parameters
    ----------
    weights : (B, L, H, T+N, T+N)

    Source: Abnar & Zuidema 2020, equation 1 and section 3; for ViTs Dosovitskiy et al. 2021, appendix D.8.
    """
    identity = np.eye(weights.shape[-1], dtype=weights.dtype)
    mixed = (identity + weights.mean(axis=2)) / 2  # (1), (B, L, R, R)
    return maps(flow(mixed)[:, np.newaxis, np.newaxis], config)[:, 0, 0]  # (2), (3)


def flow(steps: Array) -> Array:
    """Return the product A_L … A_2 A_1 (B, R, R) of steps (B, L, R, R)."""
    through = steps[:, 0]
    for i in range(1, steps.shape[1]):
        through = steps[:, i] @ through
    return through


def on_grid(seen: Array, config: Config) -> Array:
    """Lay numbers of the patches (..., N), none of them negative, on the grid (..., gy, gx), scaled to a sum of 1."""
    total = seen.sum(axis=-1, keepdims=True)
    shares: Array = np.divide(
        seen, total, out=np.full_like(seen, 1 / seen.shape[-1]), where=total != 0
    )  # all 0: equal shares; NaN stays NaN
    laid: Array = shares.reshape(*seen.shape[:-1], *config.grid)
    return laid


def coverage(masks: Array, config: Config) -> Array:
    """Return how much of each patch an object covers (B, gy, gx), in 0 … 1.

    Parameters
    ----------
    masks : (B, Y, X), true on the object

    Raises
    ------
    ValueError : masks of another size than the model's images.
    """
    (gy, gx), (py, px) = config.grid, config.patch
    if masks.shape[1:] != config.image:
        raise ValueError(f"masks {masks.shape} do not fit images of {config.image}: resize them to the model's size")
    covered: Array = masks.reshape(len(masks), gy, py, gx, px).mean(axis=(2, 4))
    return covered


def share_on(maps: Array, coverage: Array) -> Array:
    """Return the share of each map that lies on the object: Σ map · coverage, in 0 … 1.

    A map that knows nothing of the object gives, on average, the object's share of the area.

    Parameters
    ----------
    maps : (B, ..., gy, gx), each of sum 1
    coverage : (B, gy, gx)

    Returns
    -------
    shares : (B, ...)
    """
    between = maps.ndim - coverage.ndim
    spread = coverage.reshape(len(coverage), *(1,) * between, *coverage.shape[1:])
    shares: Array = (maps * spread).sum(axis=(-2, -1))
    return shares


def demand_finite(values: Array, what: str) -> None:
    """Raise CheckpointError where a model's numbers are not finite, as those of one that diverged."""
    if not np.isfinite(values).all():
        raise CheckpointError(f"{what} are not finite numbers: look at the checkpoint with numpy-vit inspect")


def demand_blocks(config: Config) -> None:
    """Raise ValueError for a model without blocks."""
    if not config.depth:
        raise ValueError("a model of 0 blocks has no attention to look at: choose one of depth 1 or more")
