"""How long training and inference take, estimated from the operations and the machine's matrix products.

Products are most of the operations, and all the rest of the time goes by the width D: a token costs products of D² and
element-wise work of D.  So a part u = D / (D + D0) of the machine's speed is reached, where D0, measured, is the width
at which the rest takes as long as the products.
"""

from __future__ import annotations

import math
import time

import numpy as np

from numpy_vit.models.vit_config import Config
from numpy_vit.views.costs import multiply_adds

# Medians of gradients and logits, by one thread's own time, beside gemm_speed just before and after, for D of 64, 192,
# 384 and 768, 9 to 197 tokens, patches of 1x8 to 16x16.  Single points gave 80 to 235 in training and 50 to 290 in
# inference, without a trend; with the constants below the estimate is 0.8 to 1.3 times the measured time.
# Inference is the forward alone, which has most of the GELU and a third of the products.
TRAINING, INFERENCE = 150, 180

_SIDE = 768


def gemm_speed(seconds: float = 0.1) -> float:
    """Return the floating-point operations a second of float32 matrix products, with the threads that BLAS has."""
    a = np.ones((_SIDE, _SIDE), np.float32)
    best, began = float("inf"), time.perf_counter()
    while (before := time.perf_counter()) - began < seconds or best == float("inf"):
        a @ a
        best = min(best, time.perf_counter() - before)
    return 2 * _SIDE**3 / best


def utilisation(config: Config, width_of_half: float) -> float:
    """Return the part of the matrix products' speed that a model reaches, given D0."""
    return config.embed_dim / (config.embed_dim + width_of_half)


def step_seconds(config: Config, batch: int, shard: int, workers: int, speed: float) -> float:
    """Return about how long the gradients of a batch take.

    Parameters
    ----------
    shard, workers : images a shard; threads
    speed : of one thread's matrix products, in FLOP a second
    """
    image = 6 * sum(multiply_adds(config).values()) / (utilisation(config, TRAINING) * speed)
    return _rounds(batch, shard, workers) * min(shard, batch) * image


def predict_seconds(config: Config, batch: int, shard: int, workers: int, speed: float) -> float:
    """Return about how long the logits of a batch take; the parameters as in step_seconds."""
    image = 2 * sum(multiply_adds(config).values()) / (utilisation(config, INFERENCE) * speed)
    return _rounds(batch, shard, workers) * min(shard, batch) * image


def _rounds(batch: int, shard: int, workers: int) -> int:
    """How many shards the busiest thread computes."""
    return math.ceil(math.ceil(batch / shard) / workers)
