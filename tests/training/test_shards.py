"""Shards of a batch: how large they are, in which order they are seen, and whose turn it is."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from numpy_vit.training.shards import LEAST, MOST, Turns, in_order, shard_size

# How large a shard is


def test_shard_size_follows_from_the_model_and_the_batch() -> None:
    assert shard_size(64, 65) == 11  # six shards of at most 715 tokens: no worker of two has more than the other
    assert -(-8 // shard_size(8, 197)) == 4  # ViT-Ti/16 at 224 and batch 8
    assert shard_size(1, 4097) == 1
    assert shard_size(64, 16) == 32
    assert shard_size(64, 8) == 64  # too little for two


@given(st.integers(1, 3000), st.integers(1, 5000), st.sampled_from([LEAST, MOST]))
def test_shards_cover_the_batch_evenly_within_the_bounds(batch: int, tokens: int, least: int) -> None:
    size, rows = shard_size(batch, tokens, least), batch * tokens
    assert 1 <= size <= batch
    assert (size - 1) * tokens < MOST  # an image less would be below: shards are whole images, the mean is not
    # One shard, or the least even number that keeps to MOST rows on average and makes four where each has `least`.
    counts = itertools.chain([1], itertools.count(2, 2))
    count = next(n for n in counts if n * MOST >= rows and (n >= 4 or n * least + least > rows))
    assert size * count >= batch > (size - 1) * count  # the smallest size with which so many shards do
    if batch % count == 0:
        assert size * count == batch


# In which order they are seen


def test_results_come_in_order_whoever_is_faster() -> None:
    gate = threading.Event()

    def task(number: int) -> int:
        if number == 0:
            assert gate.wait(5)
        else:
            gate.set()
        return number

    assert list(in_order(task, 6, 3)) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(("count", "workers"), [(5, 1), (1, 4)])
def test_one_worker_or_one_task_is_the_caller_s_own_thread(count: int, workers: int) -> None:
    assert set(in_order(lambda number: threading.get_ident(), count, workers)) == {threading.get_ident()}
    assert list(in_order(lambda number: number, 0, 3)) == []


def test_who_stops_asking_gets_no_more_tasks_and_leaves_no_thread() -> None:
    begun = []

    def task(number: int) -> int:
        begun.append(number)
        time.sleep(0.01)
        return number

    before = threading.active_count()
    results: Any = in_order(task, 1000, 2)  # five seconds, if all were done
    assert next(results) == 0
    results.close()
    assert threading.active_count() == before
    assert set(begun) == set(range(len(begun))) and len(begun) < 1000


# Whose turn it is

TASKS, PLACES = 5, ("blocks.1", "blocks.0", "")


@given(st.permutations([(number, place) for number in range(TASKS) for place in PLACES]))
def test_whatever_order_tasks_come_in_each_place_sees_them_in_theirs(order: list[tuple[int, str]]) -> None:
    """One thread brings everything: if an action that came too early waited, it would wait for ever."""
    turns, done = Turns(), []
    brought: set[tuple[int, str]] = set()
    for number, place in order:
        turns.take(number, place, lambda action=(number, place): done.append(action))  # type: ignore[misc]
        brought.add((number, place))
        for at in PLACES:  # all that can be done is done already
            ready = list(itertools.takewhile(lambda n: (n, at) in brought, range(TASKS)))  # noqa: B023
            assert [n for n, where in done if where == at] == ready


def test_an_action_that_takes_its_time_holds_nobody_up() -> None:
    """What others bring meanwhile is done by the thread that is at it, at other places at once."""
    turns, done, begun, end = Turns(), [], threading.Event(), threading.Event()

    def note(what: str) -> Callable[[], None]:
        return lambda: done.append((what, threading.current_thread()))

    def slow() -> None:
        begun.set()
        assert end.wait(5)
        note("slow")()

    here = threading.current_thread()
    thread = threading.Thread(target=turns.take, args=(0, "a", slow))
    thread.start()
    assert begun.wait(5)
    turns.take(2, "a", note("later"))
    turns.take(1, "a", note("next"))
    turns.take(0, "b", note("elsewhere"))
    assert done == [("elsewhere", here)]
    end.set()
    thread.join(5)
    turns.take(3, "a", note("last"))
    assert done[1:] == [("slow", thread), ("next", thread), ("later", thread), ("last", here)]


@pytest.mark.parametrize("finish", [range(8), range(7, -1, -1), [3, 0, 7, 1, 2, 6, 5, 4]], ids=str)
def test_sums_are_the_sequential_ones_to_the_last_bit(finish: Any) -> None:
    """Eight threads, each of which hands its arrays over when the one before it in `finish` has."""
    rng = np.random.default_rng(0)
    terms = {place: rng.standard_normal((8, 50)) * 10.0 ** rng.integers(-8, 8, (8, 50)) for place in PLACES}
    sums = {place: np.zeros(50) for place in PLACES}
    turns, gates = Turns(), [threading.Event() for _ in range(9)]

    def task(number: int) -> None:
        position = list(finish).index(number)
        assert gates[position].wait(5)
        for place in PLACES:

            def add(place: str = place) -> None:
                sums[place] += terms[place][number]

            turns.take(number, place, add)
        gates[position + 1].set()

    gates[0].set()
    assert list(in_order(task, 8, 8)) == [None] * 8
    for place in PLACES:
        expected = np.zeros(50)
        for term in terms[place]:
            expected = expected + term
        assert sums[place].tobytes() == expected.tobytes()
        assert sum(terms[place][::-1]).tobytes() != expected.tobytes()  # the order matters


def test_threads_that_race_lose_nothing_and_repeat_nothing() -> None:
    turns, done = Turns(), {place: [] for place in PLACES}  # type: ignore[var-annotated]
    together = threading.Barrier(4)

    def task(worker: int) -> None:
        together.wait(5)
        for number in range(worker, 400, 4):
            for place in PLACES:
                turns.take(number, place, lambda place=place, number=number: done[place].append(number))  # type: ignore[misc]

    list(in_order(task, 4, 4))
    assert done == {place: list(range(400)) for place in PLACES}
