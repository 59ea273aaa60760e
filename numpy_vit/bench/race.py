"""Timing several contenders fairly: in turn, round after round, after rounds that are not counted."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

Name = TypeVar("Name", bound=Hashable)

WARM_UP = 2  # rounds
_PAUSE = 0.05  # seconds: the threads of whoever ran last spin on for a moment


def race(
    contenders: Mapping[Name, Callable[[], float]],
    repeats: int,
    on_round: Callable[[int, int], None] = lambda done, rounds: None,
) -> dict[Name, list[float]]:
    """Return the seconds of each contender in each round.

    What disturbs the machine for a while disturbs a round of all contenders alike, and each round begins with
    another one.

    Parameters
    ----------
    contenders : name -> a function that does the work once and returns its seconds
    repeats : the rounds that count
    on_round : is told how many rounds are done, of how many
    """
    names = list(contenders)
    seconds: dict[Name, list[float]] = {name: [] for name in names}
    for number in range(-WARM_UP, repeats):
        on_round(number + WARM_UP, repeats + WARM_UP)
        first = number % len(names) if names else 0
        for name in names[first:] + names[:first]:
            time.sleep(_PAUSE)
            taken = contenders[name]()
            if number >= 0:
                seconds[name].append(taken)
    return seconds
