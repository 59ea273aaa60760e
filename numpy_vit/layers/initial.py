"""What weights are before training."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import DTypeLike

from numpy_vit.tree import Array

# Every function draws float64 and rounds, so that float32 and float64 models start from the same numbers.


def normal(shape: tuple[int, ...], rng: np.random.Generator, std: float = 0.02, dtype: DTypeLike = np.float32) -> Array:
    """Draw from a normal distribution of deviation `std`, truncated at +-2.

    timm's trunc_normal_ cuts at the absolute values +-2, a hundred deviations away for std 0.02; values beyond
    are drawn again there, which matters only for a large `std`.
    """
    values = rng.standard_normal(shape) * std
    while (far := np.abs(values) > 2).any():
        values[far] = rng.standard_normal(int(far.sum())) * std
    return values.astype(dtype)


def truncated(shape: tuple[int, ...], rng: np.random.Generator, std: float, dtype: DTypeLike = np.float32) -> Array:
    """Draw from a standard normal distribution cut off at +-2, then scale by `std`: timm's trunc_normal_tf_."""
    values: Array = normal(shape, rng, 1.0, np.float64) * std
    return values.astype(dtype)


def uniform_fan_in(shape: tuple[int, ...], rng: np.random.Generator, dtype: DTypeLike = np.float32) -> Array:
    """Draw uniformly from +-1/sqrt(fan_in), what PyTorch gives a convolution and timm keeps for the patch projection.

    `shape` is (out, in, ...): everything but the first axis is fan-in.
    """
    bound = 1 / math.sqrt(math.prod(shape[1:]))
    return rng.uniform(-bound, bound, shape).astype(dtype)
