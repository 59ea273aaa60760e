"""Cutting a batch into shards that threads share, with results that do not depend on how many threads there are."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

# Rows, the tokens of all images, in a shard.  At most: beyond, a matrix product gains nothing, and the activations
# leave the caches.  At least: below, Python's own time, which threads cannot share, counts more than the cores.
_MOST, _LEAST = 800, 500
_SHARDS = 4  # a batch should make so many where it has the rows, so that a few cores have something to do


def shard_size(batch: int, tokens: int) -> int:
    """Return how many images a shard has: it follows from the model and the batch, never from the workers."""
    rows = batch * tokens
    count = max(-(-rows // _MOST), min(_SHARDS, rows // _LEAST), 1)
    if count > 1:
        count += count % 2  # two workers get the same number
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
    """Lets the tasks of `in_order` do something one after the other, in their order, at every place they come by.

    Adding up gradients is such a thing: floating-point sums depend on their order.  A task waits only for tasks before
    it, which have begun before it, so that there is always one that goes on.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._next: dict[str, int] = {}  # by place: whose turn it is
        self._failed: float = float("inf")

    def take(self, number: int, place: str, action: Callable[[], None]) -> None:
        """Do `action` when all tasks before `number` have done theirs at this place.

        Raises
        ------
        RuntimeError : a task before this one failed and will never come by; its own error says why.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._next.get(place, 0) == number or self._failed < number)
            if self._failed < number:
                raise RuntimeError(f"task {number} gives up: task {self._failed} failed")
        action()
        with self._changed:
            self._next[place] = number + 1
            self._changed.notify_all()

    def fail(self, number: int) -> None:
        """Say that a task will not come by any more; those behind it need not wait."""
        with self._changed:
            self._failed = min(self._failed, number)
            self._changed.notify_all()
