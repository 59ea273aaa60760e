"""Preparing ahead: order, how far ahead, errors, and that no thread stays."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from numpy_vit.training.ahead import ahead


@pytest.fixture(autouse=True)
def no_thread_stays() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) == before


def test_everything_comes_in_order_from_another_thread() -> None:
    names: set[str] = set()

    def square(number: int) -> int:
        names.add(threading.current_thread().name)
        return number * number

    for count in (0, 1, 2, 50):
        with ahead(range(count), square) as results:
            assert list(results) == [number * number for number in range(count)]
    assert threading.current_thread().name not in names


def test_one_is_prepared_while_the_caller_works_and_no_more() -> None:
    started = [threading.Event() for _ in range(4)]
    with ahead(range(4), lambda number: started[number].set()) as results:
        next(results)
        assert started[1].wait(10)  # though nobody has asked for it
        assert not started[2].is_set()
        next(results)
        assert started[2].wait(10)
        assert not started[3].is_set()


def test_an_error_comes_where_its_item_would_have_and_once() -> None:
    def prepare(number: int) -> int:
        if number == 2:
            raise ValueError("two is broken")
        return number

    with ahead(range(5), prepare) as results:
        assert [next(results), next(results)] == [0, 1]
        with pytest.raises(ValueError, match="two is broken") as caught:
            next(results)
        assert caught.traceback[-1].name == "prepare"
        assert list(results) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_an_error_of_the_caller_drops_what_is_prepared(error: type[BaseException]) -> None:
    done: list[int] = []
    with pytest.raises(error), ahead(range(100), done.append) as results:
        next(results)
        raise error
    assert done in ([0], [0, 1])
