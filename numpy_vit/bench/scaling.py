"""How the time of a training step grows with the batch and the tokens, and falls with the workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from numpy_vit.bench.measure import spread
from numpy_vit.bench.workloads import WORKLOADS

NAME = "tiny-step"
_BATCHES = 16, 32, 64, 128
_SIDES = 32, 64, 128  # 65, 257 and 1025 tokens
_SIDES_BATCH = 8  # 1025 tokens an image would take seconds with more


class Point(NamedTuple):
    """A variation of the tiny step."""

    batch: int
    image_size: int
    workers: int


def points(workers: int) -> dict[str, list[Point]]:
    """Return what is varied, and its points: the batch, the tokens, and the workers from one up to so many."""
    side = WORKLOADS[NAME].config.image[0]
    fewer = [2**i for i in range(workers.bit_length()) if 2**i < workers]
    return {
        "batch": [Point(batch, side, workers) for batch in _BATCHES],
        "tokens": [Point(_SIDES_BATCH, size, workers) for size in _SIDES],
        "workers": [Point(WORKLOADS[NAME].batch, side, count) for count in [*fewer, workers]],
    }


def rows(workers: int, seconds: Mapping[Point, Sequence[float]]) -> list[dict[str, Any]]:
    """Return a row for each point: its time, and how many times as fast or slow as the first of its kind it is.

    Parameters
    ----------
    seconds : of each point, all rounds

    Returns
    -------
    rows : varied, batch, tokens, workers, ms; ms_per_image; and "factor", the time as a multiple of the first point's.
    """
    found = []
    patch = WORKLOADS[NAME].config.patch[0]
    for varied, own in points(workers).items():
        first = spread(seconds[own[0]]).median
        for point in own:
            median = spread(seconds[point]).median
            found.append(
                {
                    "varied": varied,
                    "batch": point.batch,
                    "tokens": 1 + (point.image_size // patch) ** 2,
                    "workers": point.workers,
                    "ms": 1000 * median,
                    "ms_per_image": 1000 * median / point.batch,
                    "factor": median / first,
                }
            )
    return found
