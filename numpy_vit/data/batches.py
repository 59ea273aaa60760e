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


def repeated_batches(
    n: int, batch_size: int, seed: int, epoch: int, repeats: int, start: int = 0
) -> Iterator[tuple[Array, Array]]:
    """Yield an epoch's batches with repeated augmentation: `repeats` copies of a sample, one after the other.

    An epoch is as long as without copies: n draws, of n / repeats samples.  The order of all samples, each
    `repeats` times, is cut into `repeats` epochs; then comes a new order.  So after every `repeats` epochs each
    sample has come equally often, and in between none has more than one set of copies more than another.  timm's
    RepeatAugSampler draws a new order every epoch and uses its beginning, which leaves that to chance.

    Copies share a batch where batch_size is a multiple of `repeats`; otherwise some sets go on in the next batch.
    Where n is no multiple, an epoch's last set goes on in the next epoch; such parts come at the end of both.  With
    repeats = 1 the batches are those of `epoch_batches`.

    Parameters
    ----------
    n, batch_size, start : as of `epoch_batches`.
    repeats : copies a sample; 3 in DeiT.

    Yields
    ------
    indices : (b,) int64, b <= batch_size
    copies : (b,) int64 in 0 .. repeats - 1, the `repeat` of `Augmentation.apply`

    Raises
    ------
    ValueError : at the call, where a number is out of range.

    Source: Hoffer et al. 2020, Augment your batch; Touvron et al. 2021, DeiT.
    """
    batches = batch_count(n, batch_size)
    if not 0 <= start <= batches:
        raise ValueError(f"start must be in 0 .. {batches}, the batches of an epoch, not {start}")
    if repeats < 1:
        raise ValueError(f"repeats must be at least 1, not {repeats}; 1 makes no copies")
    cycle, part = divmod(epoch, repeats)
    samples = order(n, seed, cycle)
    draws = np.arange(part * n, (part + 1) * n)  # of the cycle's n · repeats
    draws = np.roll(draws, -(-part * n % repeats))  # the rest of the last epoch's set comes last
    places = (slice(i * batch_size, (i + 1) * batch_size) for i in range(start, batches))
    return ((samples[draws[place] // repeats], draws[place] % repeats) for place in places)
