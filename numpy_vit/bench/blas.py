"""How many threads BLAS has: it reads these variables once, when NumPy loads, so NumPy is not imported here."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping

_VARIABLES = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


def one_thread_unless_set(surroundings: MutableMapping[str, str]) -> None:
    """Let BLAS have one thread in this process and those that it starts; what the user has set stays."""
    for name in _VARIABLES:
        surroundings.setdefault(name, "1")


def environment(surroundings: Mapping[str, str], threads: int | None) -> dict[str, str]:
    """Return the environment of a process with so many BLAS threads, or, for None, with as many as BLAS chooses."""
    own = {name: value for name, value in surroundings.items() if name not in _VARIABLES}
    return own if threads is None else {**own, **dict.fromkeys(_VARIABLES, str(threads))}
