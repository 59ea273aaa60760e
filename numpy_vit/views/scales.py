"""The numbers on an axis: round ticks, their labels and the ends of the range."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

_LARGEST, _SMALLEST = 1e300, 1e-290  # beyond these, differences and steps leave the floats


def ticks(low: float, high: float, most: int = 6, whole: bool = False) -> list[float]:
    """Return the multiples of a round step (1, 2 or 5 times a power of ten) in [low, high].

    Parameters
    ----------
    most : the step is the smallest that cuts the range into no more parts than this.
    whole : for counts such as epochs: no step below 1.

    Raises
    ------
    ValueError : low >= high, or one of them is not finite.
    """
    digit, power = _step(low, high, most)
    if whole and power < 0:
        digit, power = 1, 0
    step = _multiple(digit, power)
    slack = 1e-6  # of a step: 0.3 / 0.1 is a little less than 3
    first, last = math.ceil(low / step - slack), math.floor(high / step + slack)
    return [_multiple(k * digit, power) for k in range(first, last + 1)]


def tick_labels(values: Sequence[float]) -> list[str]:
    """Write ascending ticks with the decimals that tell them apart: 0.05, or 5e-5 where zeros would drown digits."""
    if len(values) < 2:
        return [compact(value, 6) for value in values]
    top = _power(max(abs(value) for value in values))
    unit = _power(min(after - before for before, after in pairwise(values)))
    if -4 < top < 6:
        labels = [f"{value:.{max(0, -unit)}f}" for value in values]
    else:
        labels = [f"{value:.{max(0, _power(abs(value)) - unit)}e}" if value else "0" for value in values]
    return [_trim_exponent(label) for label in labels]


def extent(
    values: Iterable[float], include: Iterable[float] = (), within: tuple[float, float] = (-math.inf, math.inf)
) -> tuple[float, float]:
    """Return the round ends of an axis that shows `values`; what is not finite does not count.

    Parameters
    ----------
    values : what will be drawn; if it is constant, the axis leaves room around it.
    include : further values that the axis must show, such as 0.
    within : the values that make sense; room is not made outside of it.

    Returns
    -------
    low, high : low < high; (0, 1) when there is nothing to show.
    """
    shown = [value for value in (*values, *include) if drawable(value)]
    if not shown:
        return 0.0, 1.0
    low, high = min(shown), max(shown)
    size = max(abs(low), abs(high))
    if high - low <= max(1e-9 * size, _SMALLEST):
        room = 0.1 * size if size > _SMALLEST else 1.0
        low, high = min(low, max(low - room, within[0])), max(high, min(high + room, within[1]))
    step = _multiple(*_step(low, high, 6))
    return min(low, math.floor(low / step + 1e-6) * step), max(high, math.ceil(high / step - 1e-6) * step)


def drawable(value: float) -> bool:
    """Tell whether a value has a place on an axis: neither NaN nor infinite nor absurdly large."""
    return abs(value) <= _LARGEST  # false for NaN


def compact(value: float, digits: int = 4) -> str:
    """Write a number in few characters: 0.4123, 2.5e-5, nan."""
    return _trim_exponent(f"{value:.{digits}g}")


def _step(low: float, high: float, most: int) -> tuple[int, int]:
    """Return (digit, power) of the smallest step digit * 10**power with no more than `most` steps in the range."""
    if not (low < high and math.isfinite(high - low)):
        raise ValueError(f"an axis needs finite ends, low < high; got {low} and {high}")
    rough = (high - low) / most
    power = _power(rough)
    for digit in (1, 2, 5):
        if _multiple(digit, power) >= rough * (1 - 1e-9):
            return digit, power
    return 1, power + 1


def _multiple(count: int, power: int) -> float:
    # Dividing by the exact 10 rounds once: 3 / 10 is 0.3, while 3 * 0.1 is not.
    return count * 10.0**power if power >= 0 else count / 10.0**-power


def _power(value: float) -> int:
    """Return the power of ten at which a positive number's first digit stands."""
    return math.floor(math.log10(value) + 1e-9)


def _trim_exponent(text: str) -> str:
    mantissa, mark, exponent = text.partition("e")
    return f"{mantissa}e{int(exponent)}" if mark else text
