"""A smaller data set with every class in it."""

from __future__ import annotations

import numpy as np

from numpy_vit.data.batches import order
from numpy_vit.data.dataset import ImageSet
from numpy_vit.errors import DataError
from numpy_vit.tree import Array

_SAMPLES, _CLASSES = 2**64 - 1, 2**64 - 2  # epochs that no run reaches, so that no order of an epoch is used twice


def balanced(images: ImageSet, count: int, seed: int) -> ImageSet:
    """Return `count` random samples, as many of each class as there are; nothing is decoded.

    Raises
    ------
    DataError : there are fewer than `count` samples.
    ValueError : `count` is below 1, or a seed that is not in 0 .. 2^64 - 1.
    """
    if count > len(images):
        raise DataError(f"{images.name} has {len(images):,} images, not {count:,}: ask for fewer, or for all")
    return images.subset(balanced_indices(images.labels, count, seed))


def balanced_indices(labels: Array, count: int, seed: int) -> Array:
    """Return the indices (count,) int64, ascending, of a random subset with as many samples of each class as possible.

    The numbers of two classes differ by one at most, unless a class has no more.  With the same seed, the samples of
    a smaller subset are in every larger one, so that runs on more and more images can be compared.

    Parameters
    ----------
    labels : (n,)

    Raises
    ------
    ValueError : `count` is not in 1 .. n, or a seed that is not in 0 .. 2^64 - 1.
    """
    if not 1 <= count <= len(labels):
        raise ValueError(f"a subset has 1 to {len(labels):,} of these samples, not {count}")
    samples = order(len(labels), seed, _SAMPLES)
    rank = np.empty(len(labels), np.int64)  # how many of its class come before a sample
    kinds = np.unique(labels)
    for kind in kinds:
        members = samples[labels[samples] == kind]
        rank[members] = np.arange(len(members))
    turn = np.empty(int(kinds[-1]) + 1, np.int64)  # which class gives first where not all can give another sample
    turn[kinds] = order(len(kinds), seed, _CLASSES)
    chosen: Array = np.sort(np.lexsort((turn[labels], rank))[:count])  # all the firsts, then all the seconds, …
    return chosen
