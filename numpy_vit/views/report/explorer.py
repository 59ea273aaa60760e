"""The explorer's numbers: each token's attention on every other, and the gradient that flows back through it.

Shapes: L blocks, H heads, R tokens: T prefix tokens, then N patches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from numpy_vit.errors import CheckpointError
from numpy_vit.models import deit
from numpy_vit.models.vit_config import Config
from numpy_vit.tree import Array, Params
from numpy_vit.views import saliency
from numpy_vit.views.colour_maps import diverging, sequential
from numpy_vit.views.likeliest import likeliest
from numpy_vit.views.report import packed
from numpy_vit.views.report.markup import percent, picture_url
from numpy_vit.views.report.packed import Packed

BUDGET = 3_500_000  # characters that the maps of all images may take; the first image comes in any case
ALONE = 16_000_000  # what one image may take
_BYTE = 4 / 3  # characters that a byte of the maps takes in base 64; deflating saves a quarter of it, about


@dataclass(frozen=True)
class Offered:
    """An image that the explorer might show.

    Parameters
    ----------
    name : what the page calls it
    pixels : (C, Y, X), as the model takes it
    picture : (Y, X, 3) bytes, as people see it
    truth : its class, where that is known
    """

    name: str
    pixels: Array
    picture: Array
    truth: str | None = None


@dataclass(frozen=True)
class Explored:
    """An image and all of its maps.

    Parameters
    ----------
    top : the likeliest classes and their shares, the likeliest first; none of a model without a head
    weights : (L, H, R, R) packed; H is 1 where the heads are averaged
    gradients : the same, of the logit of the first class of `top`; None without a head
    """

    image: Offered
    top: tuple[tuple[str, float], ...]
    weights: Packed
    gradients: Packed | None


def explore(
    model: ModuleType,
    params: Params,
    config: Config,
    offered: Iterable[Offered],
    class_names: Sequence[str],
    budget: int = BUDGET,
    on_progress: Callable[[int], None] = lambda done: None,
) -> list[tuple[Explored, dict[str, Any]]]:
    """Return the first images with their maps, and as the page's script takes them, as many as the budget allows.

    Parameters
    ----------
    model : vit or deit
    class_names : K names; not used for a model without a head
    on_progress : called with the images done

    Raises
    ------
    CheckpointError : the model's numbers are not finite.
    ValueError : a model of which no heads are shown.
    """
    heads = heads_shown(config)
    if not heads:
        raise ValueError("the maps of this model are empty or too large for a page: heads_shown says so")
    averaged = heads != config.num_heads
    found: list[tuple[Explored, dict[str, Any]]] = []
    used = 0
    for image in offered:
        one = look(model, params, config, image, class_names, averaged)
        entry = _entry(one)
        size = len(entry["weights"]) + len(entry["gradients"] or "")
        if found and used + size > budget:
            break
        found.append((one, entry))
        used += size
        on_progress(len(found))
        if used + size > budget:  # images of one model take about the same
            break
    return found


def heads_shown(config: Config) -> int:
    """Return how many heads an image's maps have: all; 1, their mean, where all take too much; 0 where even that does.

    A model without blocks has none.
    """
    both = 2 if config.num_classes else 1
    each = _BYTE * both * config.depth * config.num_tokens**2  # of a head
    if not config.depth or each > ALONE:
        return 0
    return config.num_heads if each * config.num_heads <= ALONE else 1


def look(
    model: ModuleType, params: Params, config: Config, image: Offered, class_names: Sequence[str], averaged: bool
) -> Explored:
    """Run one image forward, and the logit of its likeliest class back."""
    with np.errstate(over="ignore", invalid="ignore"):  # weights that went bad are told below
        logits, cache = model.forward(params, image.pixels[np.newaxis], config, record={})
    T = config.num_prefix_tokens
    weights = _stacked(model.attention_weights(cache), averaged)
    whole = np.mean(logits if isinstance(logits, tuple) else (logits,), axis=0)[0]
    if not (np.isfinite(whole).all() and np.isfinite(weights).all()):
        raise CheckpointError("the model's numbers are not finite: look at the checkpoint with numpy-vit inspect")
    if not config.num_classes:
        return Explored(image, (), packed.weights(weights, T), None)
    top = likeliest(whole, 3)
    record: dict[str, Array] = {}
    model.backward(saliency.upstream(logits, top[0][0]), cache, record=record)
    gradients = _stacked(model.attention_gradients(cache, record), averaged)
    named = tuple((class_names[i], share) for i, share in top)
    return Explored(image, named, packed.weights(weights, T), packed.signed(gradients, T))


def script_data(config: Config, entries: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return all that the page's script needs, with the entries of `explore`; the colours are from colour_maps."""
    heads = heads_shown(config)
    T, (gy, gx) = config.num_prefix_tokens, config.grid
    return {
        "size": config.image,
        "grid": (gy, gx),
        "blocks": config.depth,
        "heads": heads,
        "averaged": heads != config.num_heads,
        "prefix": prefix_names(config),
        "start": 0 if T else T + gy // 2 * gx + gx // 2,  # the class token, or the patch in the middle
        "sequential": sequential(np.linspace(0, 1, 256)).tolist(),
        "diverging": diverging(np.linspace(-1, 1, 255)).tolist(),
        "images": entries,
    }


def prefix_names(config: Config) -> list[str]:
    """Return what the T tokens in front of the patches are called, in their order."""
    names = ["class token"] if config.class_token else []
    names += ["distillation token"] if isinstance(config, deit.Config) else []
    return names + [f"register {i}" for i in range(config.reg_tokens)]


def _stacked(of_blocks: Sequence[Array], averaged: bool) -> Array:
    """Each block's (1, H, R, R) as (L, H, R, R), or (L, 1, R, R) where the heads are averaged."""
    each = [block[0].mean(axis=0, keepdims=True) if averaged else block[0] for block in of_blocks]
    return np.stack(each)


def _entry(one: Explored) -> dict[str, Any]:
    return {
        "name": one.image.name,
        "truth": one.image.truth,
        "top": [[name, percent(share)] for name, share in one.top],
        "picture": picture_url(one.image.picture),
        "weights": packed.written(one.weights),
        "gradients": None if one.gradients is None else packed.written(one.gradients),
    }
