"""Cutting a batch into shards that threads share, with results that do not depend on how many threads there are."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

# Rows, the tokens of all images, in a shard.  At most, on average: beyond, a matrix product gains nothing, and the
# activations leave the caches.  At least: below, Python's own time, which threads cannot share, counts more than the
# cores.
MOST, LEAST = 800, 500
_SHARDS = 4  # a batch should make so many where it has the rows, so that a few cores have something to do


def shard_size(batch: int, tokens: int, least: int = LEAST) -> int:
    """Return how many images a shard has: it follows from the model and the batch, never from the workers.

    Parameters
    ----------
    least : rows that a shard should have at least.  MOST suits inference, which keeps no activations
    """
    rows = batch * tokens
    count = max(-(-rows // MOST), min(_SHARDS, rows // least), 1)
    if count > 1:
        count += count % 2  # two workers get the same number, where it divides the batch
    return -(-batch // count)


def in_order(task: Callable[[int], T], count: int, workers: int) -> Iterator[T]:
    """Yield task(0), task(1), … in this order, computed by so many threads.

    Tasks begin in their order too.  An exception in a task reaches the caller with its own traceback; tasks that have
    not begun are dropped, and no thread is left behind.
    """
    if workers <= 1 or count <= 1:
        yield from map(task, range(count))
        return
    pool = ThreadPoolExecutor(min(workers, count))
    try:
        yield from pool.map(task, range(count))
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


class Turns:
    """Does what the tasks of `in_order` ask for in the tasks' order, at every place by itself, and lets none wait.

    Adding up gradients is such a thing: floating-point sums depend on their order.  What comes early is put aside, and
    done by whoever brings what was missing before it.  Tasks run side by side, so that is what one task brings, as a
    rule; where a thread is held up it is more, for so long.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._aside: dict[str, dict[int, Callable[[], None]]] = {}  # by place and task
        self._next: dict[str, int] = {}  # by place: whose turn it is, also while its action is being done

    def take(self, number: int, place: str, action: Callable[[], None]) -> None:
        """Do `action` after those that all tasks before `number` brought to this place: now, or later in a thread."""
        with self._lock:
            self._aside.setdefault(place, {})[number] = action
            turn = self._next.setdefault(place, 0)
            following = self._aside[place].pop(turn, None)
        while following is not None:
            following()
            with self._lock:
                self._next[place] += 1
                following = self._aside[place].pop(self._next[place], None)
