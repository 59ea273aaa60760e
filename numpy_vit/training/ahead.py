"""Preparing the next batch while the present one is computed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

Item = TypeVar("Item")
Made = TypeVar("Made")


@contextmanager
def ahead(items: Iterable[Item], prepare: Callable[[Item], Made]) -> Iterator[Iterator[Made]]:
    """Give an iterator over prepare(item) for each item: while the caller uses one, a thread prepares the next.

    No more than one is prepared ahead.  An exception in `prepare` reaches the caller where its item would have come,
    with its own traceback.  However the block is left, no thread is left behind; it waits for what `prepare` is at.
    """
    thread = ThreadPoolExecutor(1, "ahead")  # one, so that they are prepared in their order

    def results() -> Iterator[Made]:
        pending: Future[Made] | None = None
        for item in items:
            following = thread.submit(prepare, item)
            if pending is not None:
                yield pending.result()
            pending = following
        if pending is not None:
            yield pending.result()

    try:
        yield results()
    finally:
        thread.shutdown(wait=True, cancel_futures=True)
