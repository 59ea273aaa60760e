"""Finding out why the first tensor differs: our own model is changed until the difference is rounding."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from numpy_vit.checks.causes import Alternative, alternatives, alternatives_in_block
from numpy_vit.checks.judge import Computed, Row, compared, compute, progress
from numpy_vit.checks.port import Port
from numpy_vit.checks.precision import distance
from numpy_vit.checks.reference import Reference
from numpy_vit.tree import Array

PATIENCE = 20.0  # seconds in which pairs of mistakes are tried for one tensor
# What rounding explains is known only of a model that has been run in both precisions, so a trial in float64 alone may
# leave this much of a tensor, and half of the difference at most; the nearest of the trials are then run in both.
_LOOSELY, _HALF, _MOST = 1e-2, 0.5, 8


class _Seen(Exception):  # noqa: N818 - no error: the forward has computed what was wanted
    pass


class _Watch(dict[str, Array]):
    """A record that stops the forward at the first tensor that differs too much, or at the last one wanted."""

    def __init__(self, port: Port, reference: Reference, allowed: dict[str, float], last: str) -> None:
        super().__init__()
        self.port, self.reference, self.allowed, self.last = port, reference, allowed, last
        self.before = True  # whether everything up to now is the same
        self.gap = np.inf

    def __setitem__(self, name: str, value: Array) -> None:
        if name in self.reference.outputs and name in self.allowed:
            gap = distance(self.port.output(name, value), self.reference.outputs[name])
            self.before = gap <= self.allowed[name]
            if name == self.last:
                self.gap = gap
            if name == self.last or not self.before:
                raise _Seen


@dataclass(frozen=True)
class Trial:
    """One or two alternatives that were tried, and the difference that they leave at the tensor."""

    tried: tuple[Alternative, ...]
    port: Port
    gap: float
    fits: bool


@dataclass(frozen=True)
class Explanation:
    """The alternatives that explain a difference, and our model with them."""

    tried: tuple[Alternative, ...]
    port: Port
    gap: float
    computed: Computed
    rows: list[Row]


class Search:
    """The search for what makes our model compute the reference's `tensor`, and everything before it.

    Parameters
    ----------
    port : our model as far as it is known
    tensor : the first that differs
    rows : of the comparison so far
    gradients : the reference's, under our keys
    """

    def __init__(
        self, port: Port, reference: Reference, tensor: str, rows: list[Row], gradients: Mapping[str, Array]
    ) -> None:
        self.port, self.reference, self.tensor, self.gradients = port, reference, tensor, gradients
        self.allowed = {row.name: max(row.allowed, _LOOSELY * row.scale) for row in rows}
        self.gap = next(row.gap for row in rows if row.name == tensor)
        self.tried = 0
        self._singles: list[Trial] = []

    def one(self) -> Explanation | None:
        """Try every alternative in all blocks, then in the tensor's block alone; return the best that explains it."""
        self._singles = [self._attempt((one,)) for one in alternatives(self.port)]
        if found := self._best(self._singles):
            return found
        return self._best([self._attempt((one,)) for one in alternatives_in_block(self.port, self.tensor)])

    def two(self) -> Explanation | None:
        """Try two alternatives at once, after `one` found nothing."""
        return self._best(self._pairs([trial.tried[0] for trial in self._singles if trial.gap < np.inf]))

    def _attempt(self, tried: tuple[Alternative, ...]) -> Trial:
        self.tried += 1
        watch = _Watch(self.port, self.reference, self.allowed, self.tensor)
        changed = self.port
        try:
            for one in tried:
                changed = changed.changed(one.change)
            watch.port = changed
            changed.forward(np.float64, watch)
        except _Seen:
            pass
        except ValueError:  # the configuration does not allow it
            return Trial(tried, self.port, np.inf, False)
        return Trial(tried, changed, watch.gap, watch.before and watch.gap <= _HALF * self.gap)

    def _pairs(self, relevant: list[Alternative]) -> Iterator[Trial]:
        """Two at once, as long as the patience lasts: of those that leave what comes before the tensor as it is."""
        end = time.monotonic() + PATIENCE
        for i, first in enumerate(relevant):
            later = {one.name for one in relevant[i + 1 :] if one.name.split()[0] != first.name.split()[0]}
            for second in alternatives(self.port.changed(first.change)):  # whose meaning may depend on the first
                if time.monotonic() > end:
                    return
                if second.name in later:  # two eps or two head counts contradict each other
                    yield self._attempt((first, second))

    def _best(self, trials: Iterable[Trial]) -> Explanation | None:
        """Of those that explain the tensor, the one that explains most of what follows, then the nearest."""
        fitting = sorted((trial for trial in trials if trial.fits), key=lambda trial: trial.gap)[:_MOST]
        found = [one for trial in fitting if (one := self._verified(trial))]
        if not found:
            return None
        furthest = max(progress(one.rows) for one in found)
        last = [one for one in found if progress(one.rows) == furthest]
        least = min(one.gap for one in last)
        return next(one for one in last if one.gap <= 4 * least)

    def _verified(self, trial: Trial) -> Explanation | None:
        """Run the changed model in both precisions: the tensor and all before it have to be the same."""
        computed = compute(trial.port)
        rows = compared(computed, self.reference, self.gradients)
        names = [row.name for row in rows]
        if progress(rows) <= names.index(self.tensor):
            return None
        return Explanation(trial.tried, trial.port, trial.gap, computed, rows)
