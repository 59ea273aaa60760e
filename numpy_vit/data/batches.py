"""The order of an epoch and its batches: functions of (seed, epoch), so training resumes anywhere."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from numpy_vit.data.randomness import epoch_rng
from numpy_vit.tree import Array


def order(n: int, seed: int, epoch: int) -> Array:
    """Return the order of `n` samples in an epoch, a permutation (n,) int64.

    It sorts Philox's raw bits, since NumPy promises those, and not `Generator.permutation`, for all versions:
    a run resumes in the same order after an upgrade.

    Raises
    ------
    ValueError : `n` is below 1, or a seed or epoch is not in 0 .. 2^64 - 1.
    """
    if n < 1:
        raise ValueError(f"n must be at least 1, not {n}; an epoch needs samples")
    draws = np.asarray(epoch_rng(seed, epoch).bit_generator.random_raw(n))
    return np.argsort(draws, kind="stable").astype(np.int64)


def batch_count(n: int, batch_size: int) -> int:
    """Return the number of batches in an epoch; the last may be smaller.

    Raises
    ------
    ValueError : `n` or `batch_size` is below 1.
    """
    if n < 1 or batch_size < 1:
        raise ValueError(f"n and batch_size must be at least 1, not {n} and {batch_size}")
    return -(-n // batch_size)


def epoch_batches(n: int, batch_size: int, seed: int, epoch: int, start: int = 0) -> Iterator[Array]:
    """Yield the index arrays of an epoch's batches, every sample exactly once.

    Parameters
    ----------
    n : number of samples.
    batch_size : samples a batch; the last batch may have fewer.
    start : number of batches already done; the rest are those of the whole epoch.

    Yields
    ------
    (b,) int64, b <= batch_size

    Raises
    ------
    ValueError : at the call, where a number is out of range.
    """
    batches = batch_count(n, batch_size)
    if not 0 <= start <= batches:
        raise ValueError(f"start must be in 0 .. {batches}, the batches of an epoch, not {start}")
    samples = order(n, seed, epoch)
    return (samples[i * batch_size : (i + 1) * batch_size] for i in range(start, batches))
