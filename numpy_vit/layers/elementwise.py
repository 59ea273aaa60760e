"""Working on every entry of some arrays, in pieces that stay in the processor's cache."""

from __future__ import annotations

from collections.abc import Iterator

from numpy_vit.tree import Array

# A chain of a dozen NumPy operations over 20 MB reads and writes memory a dozen times; over 65,536 numbers at a time
# it stays in the second-level cache.  Smaller pieces, which would stay in the first, lose more than that gains to the
# cost of starting each operation, and twice so with two threads, which pass Python's lock to and fro.
_PIECE = 65536


def pieces(*arrays: Array) -> Iterator[tuple[Array, ...]]:
    """Yield the same few entries of every array, flattened, until all have been seen.

    Writing into a piece writes into its array, if that is contiguous, as a new one is.

    Parameters
    ----------
    arrays : all of one shape
    """
    flat = [array.reshape(-1) for array in arrays]
    for start in range(0, flat[0].size, _PIECE):
        yield tuple(array[start : start + _PIECE] for array in flat)
