"""What speaks for a class: how much each pixel, or each patch, adds to its logit.

Shapes: images (B, C, Y, X), classes K, tokens R = T + N, heads H, blocks L, patches on a grid of (gy, gx).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from numpy_vit.models.vit_config import Config
from numpy_vit.tree import Array, Params
from numpy_vit.views.attention_maps import demand_blocks, demand_finite, flow, on_grid

MOST_STEPS = 1024  # the rule's places are eigenvalues of a matrix of steps x steps
_AT_ONCE = 8  # images whose caches exist at a time


@dataclass(frozen=True)
class Integrated:
    """Integrated gradients of one image.

    Parameters
    ----------
    contributions : (C, Y, X), what each value adds to the logit
    logit, baseline_logit : of the image and of the baseline
    residual : sum of the contributions minus the difference of the logits; 0 but for the integral's error
    """

    contributions: Array
    logit: float
    baseline_logit: float
    residual: float


def gradient_times_input(model: ModuleType, params: Params, image: Array, config: Config, target: int) -> Array:
    """Return x · ∂logit/∂x (C, Y, X): the logit's first-order change if a value were the baseline 0 instead.

    Parameters
    ----------
    model : vit or deit
    image : (C, Y, X), as the model takes it: the baseline is the colour that its preprocessing maps to 0
    target : the class

    Raises
    ------
    CheckpointError : the logit or its gradient is not finite.

    Source: Shrikumar et al. 2016, "Not just a black box", section 3.
    """
    _, (gradient,) = logits_and_gradients(model, params, image[np.newaxis], config, target)
    product: Array = image * gradient
    return product


def integrated_gradients(
    model: ModuleType,
    params: Params,
    image: Array,
    config: Config,
    target: int,
    steps: int = 64,
    on_progress: Callable[[int, int], None] = lambda done, of: None,
) -> Integrated:
    """Integrate the gradient from an image of zeros, the colour that the preprocessing maps to 0, to this one.

    (1) F(x) - F(0) = ∫₀¹ d F(a x)/da da = Σ_i x_i ∫₀¹ ∂F/∂x_i (a x) da: each value's part of the difference
    (2) the integral by Gauss and Legendre's rule: `steps` gradients, at places and with weights that integrate
        polynomials of degree 2·steps - 1 exactly

    The gradients are taken in the parameters' dtype, the sums in float64.

    Parameters
    ----------
    image : (C, Y, X), as the model takes it
    target : the class
    steps : more make the residual smaller; at most MOST_STEPS
    on_progress : called with the steps done and all of them

    Raises
    ------
    CheckpointError : a logit or a gradient is not finite.
    ValueError : less than one step, or more than MOST_STEPS.

    Source: Sundararajan, Taly & Yan 2017, equation 1; completeness is their proposition 1.
    """
    if steps < 1:
        raise ValueError(f"{steps} steps integrate nothing: take one or more")
    if steps > MOST_STEPS:
        raise ValueError(f"{steps} steps are more than the rule is built for: take {MOST_STEPS} at most")
    nodes, node_weights = np.polynomial.legendre.leggauss(steps)
    places, shares = (1 + nodes) / 2, node_weights / 2  # from [-1, 1] to [0, 1]
    total = np.zeros(image.shape)
    for start in range(0, steps, _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        on_the_way = (places[part, np.newaxis, np.newaxis, np.newaxis] * image).astype(image.dtype)
        _, gradients = logits_and_gradients(model, params, on_the_way, config, target)
        total += np.tensordot(shares[part], gradients.astype(np.float64), axes=1)  # (2)
        on_progress(min(start + _AT_ONCE, steps), steps)
    contributions = image * total  # (1)
    ends = predict(model, params, np.stack([image, np.zeros_like(image)]), config)[:, target]
    logit, baseline = (float(value) for value in ends)
    return Integrated(contributions, logit, baseline, float(contributions.sum()) - (logit - baseline))


@np.errstate(over="ignore", invalid="ignore")  # weights that went bad are told in one line
def weighted_rollout(model: ModuleType, params: Params, image: Array, config: Config, target: int) -> Array:
    """Return the map (gy, gx) of rollout through those attention weights alone that speak for the class; sum 1.

    (1) of block l, with G the gradient of the logit by its weights A:  Ā_l = mean over heads of max(G ⊙ A, 0)
    (2) R ← R + Ā_l R, from R = I: R = (I + Ā_L) … (I + Ā_1)
    (3) what a token has of itself, the I, is no attention: the map is of R - I
    (4) the logit reads the last tokens as Σ_m r_m g_m(x_m), to first order.  Row m of G has the factor r_m already, by
        the chain rule, so that each edge is counted in the logit's own unit: the map is Σ_m (R - I)_m over the rows
        that are read, unweighted; a weight r_m more would count the reading twice

    With attention pooling those are the patches: how the pool weighs them is in G, but its own weights are no block's
    and give the map no edges.

    Parameters
    ----------
    image : (C, Y, X), as the model takes it
    target : the class

    Raises
    ------
    CheckpointError : the weights or their gradients are not finite.
    ValueError : a model without blocks.

    Source: Chefer, Gur & Wolf 2021, "Generic attention-model explainability", equations 5 and 6, for a class token;
    (4) for other readers is ours.
    """
    demand_blocks(config)
    logits, cache = model.forward(params, image[np.newaxis], config, record={})
    record: dict[str, Array] = {}
    model.backward(upstream(logits, target), cache, record=record)
    pairs = zip(model.attention_weights(cache), model.attention_gradients(cache, record), strict=True)
    steps = [np.maximum(gradient * weight, 0).mean(axis=1) for weight, gradient in pairs]  # (1), each (1, R, R)
    identity = np.eye(steps[0].shape[-1], dtype=steps[0].dtype)
    relevance = (flow(np.stack(steps, axis=1) + identity) - identity)[0]  # (2), (3)
    of_logit = relevance[rows_read(config), config.num_prefix_tokens :].sum(axis=0)  # (4), (N,)
    demand_finite(of_logit, "the attention weights and their gradients")
    return on_grid(of_logit, config)


def rows_read(config: Config) -> list[int]:
    """Return which of the last block's tokens the logit reads.

    The class token, a distilled model's two; the patches that a mean or an attention pools, or all tokens where
    pool_include_prefix says so; the class token and the patches for "token_avg".
    """
    T, everything = config.num_prefix_tokens, config.num_tokens
    if config.global_pool == "token":
        return list(range(config.read_tokens))
    if config.global_pool == "token_avg":
        return [0, *range(T, everything)]
    whole = config.global_pool == "avg" and config.pool_include_prefix
    return list(range(0 if whole else T, everything))


@np.errstate(over="ignore", invalid="ignore")  # weights that went bad are told in one line
def predict(model: ModuleType, params: Params, images: Array, config: Config) -> Array:
    """Return the logits (B, K) of images, or raise CheckpointError where they are not finite."""
    found: Array = model.predict(params, images, config)
    demand_finite(found, "the logits")
    return found


@np.errstate(over="ignore", invalid="ignore")
def logits_and_gradients(
    model: ModuleType, params: Params, images: Array, config: Config, target: int
) -> tuple[Array, Array]:
    """Return the logit of a class (B,) and its gradient by the images (B, C, Y, X).

    A distilled model's logit is the mean of its heads', as in its predict.

    Raises
    ------
    CheckpointError : one of them is not finite.
    """
    logits, cache = model.forward(params, images, config)
    dimages, _ = model.backward(upstream(logits, target), cache, input_grad=True)
    of_class = np.mean(logits if isinstance(logits, tuple) else (logits,), axis=0)[:, target]
    demand_finite(of_class, "the logits")
    demand_finite(dimages, "the gradients")
    return of_class, dimages


def upstream(logits: Any, target: int) -> Any:
    """Return the gradient of a class's logit by the logits: 1 at the class; shared where there are two heads."""
    if isinstance(logits, tuple):
        return tuple(upstream(head, target) / len(logits) for head in logits)
    dlogits = np.zeros_like(logits)
    dlogits[:, target] = 1
    return dlogits
