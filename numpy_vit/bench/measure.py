"""Medians and their spread, the memory of this process, and the speed of the machine's matrix products."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np

_SIDE = 1024  # of the products: large enough that BLAS is at its best


class Spread(NamedTuple):
    """Least, quartiles and greatest of some numbers."""

    least: float
    lower: float
    median: float
    upper: float
    greatest: float


def spread(values: Sequence[float]) -> Spread:
    """Return the median of some numbers and how far they lie apart.

    Raises
    ------
    ValueError : no numbers.
    """
    if not values:
        raise ValueError("a median needs one number at least")
    return Spread(*np.quantile(values, (0, 0.25, 0.5, 0.75, 1)).tolist())


def resident_bytes() -> int | None:
    """Return how much memory this process has now; where the system does not say, the most that it had so far."""
    return _status("VmRSS") or _most_used()


def peak_bytes() -> int | None:
    """Return the most memory that this process had so far; None where the system does not say."""
    # Linux's getrusage counts what the process was before it became this program.
    return _status("VmHWM") or _most_used()


def _status(field: str) -> int | None:
    status = Path("/proc/self/status")
    if not status.is_file():
        return None
    for line in status.read_text("utf-8", "replace").splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    return None


def _most_used() -> int | None:
    try:
        import resource
    except ImportError:  # Windows
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def gemm_peak(workers: int, attempts: int = 6) -> float:
    """Return the FLOP a second of the best of several float32 products, one in each of so many threads at once.

    With one BLAS thread each, this is the peak of a sharded row; with one worker, that of all of BLAS's threads.
    """
    a = np.ones((workers, _SIDE, _SIDE), np.float32)
    out = np.empty_like(a)

    def product(i: int) -> None:
        for _ in range(4):  # long beside the handing out
            np.matmul(a[i], a[i], out=out[i])

    best = float("inf")
    with ThreadPoolExecutor(workers) as pool:
        for _ in range(attempts):
            began = time.perf_counter()
            list(pool.map(product, range(workers)))
            best = min(best, time.perf_counter() - began)
    return workers * 4 * 2 * _SIDE**3 / best
