"""Where the time goes: each layer, forward and backward, without the layers that it calls, and what is beside them."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from inspect import isfunction
from types import ModuleType
from typing import Any, NamedTuple

from numpy_vit.training import groups, shards, step


class Part(NamedTuple):
    """A function that is timed."""

    owner: Any  # the module or class that has it
    function: str
    name: str  # under which its time is counted
    layer: bool = True  # else it is neither forward nor backward


_OPTIMIZER = Part(groups, "apply", "optimizer", layer=False)
BESIDE = [_OPTIMIZER, Part(shards.Turns, "take", "sum of gradients", layer=False)]  # of layers, in a step
HALVES = [_OPTIMIZER, Part(step, "gradients", "gradients", layer=False)]  # of a step; the thread that steps calls them


@dataclass
class Times:
    """Seconds by name: a function's own, not those of the functions below it that are timed too."""

    forward: dict[str, float] = field(default_factory=dict)
    backward: dict[str, float] = field(default_factory=dict)
    beside: dict[str, float] = field(default_factory=dict)  # the layers

    @property
    def total(self) -> float:
        """The seconds of all of them together."""
        return sum(sum(part.values()) for part in (self.forward, self.backward, self.beside))


@dataclass
class _Call:
    backward: bool
    below: float = 0.0  # seconds in the calls that it made


def loaded_layers() -> list[ModuleType]:
    """Return the modules of layers and models that something has imported: those with a forward and a backward."""
    rooms = ("numpy_vit.layers.", "numpy_vit.models.")
    modules = [module for name, module in sorted(sys.modules.items()) if name.startswith(rooms)]
    return [module for module in modules if hasattr(module, "forward") and hasattr(module, "backward")]


def parts_of(modules: Iterable[ModuleType]) -> list[Part]:
    """Return the functions of layers' modules that are worth timing, under the modules' short names."""
    return [
        Part(module, name, module.__name__.rpartition(".")[2])
        for module in modules
        for name, function in vars(module).items()
        if isfunction(function)
        and function.__module__ == module.__name__
        and not name.startswith("_")
        and name != "init"
    ]


@contextmanager
def watched(parts: Iterable[Part]) -> Iterator[Times]:
    """Time functions for the duration of the block, in which one thread alone may use them.

    Layers call each other through their modules, so the modules' functions are wrapped, and put back at the end
    whatever happens.  A function whose name says backward, and all that it calls, is the backward.
    """
    times = Times()
    calls: list[_Call] = []
    originals = [(part, vars(part.owner)[part.function]) for part in parts]
    try:
        for part, function in originals:
            setattr(part.owner, part.function, _timed(function, part, times, calls))
        yield times
    finally:
        for part, function in originals:
            setattr(part.owner, part.function, function)


def _timed(function: Callable[..., Any], part: Part, times: Times, calls: list[_Call]) -> Callable[..., Any]:
    @functools.wraps(function)
    def timed(*args: Any, **kwargs: Any) -> Any:
        call = _Call("backward" in function.__name__ or bool(calls and calls[-1].backward))
        calls.append(call)
        began = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            seconds = time.perf_counter() - began
            calls.pop()
            if calls:
                calls[-1].below += seconds
            own = times.beside if not part.layer else times.backward if call.backward else times.forward
            own[part.name] = own.get(part.name, 0.0) + seconds - call.below

    return timed


def mean_times(run: Callable[[], Any], parts: Iterable[Part], repeats: int = 3) -> tuple[Times, float]:
    """Return the mean times of the parts in `run`, and those of the whole run."""
    began = time.perf_counter()
    with watched(parts) as times:
        for _ in range(repeats):
            run()
    whole = (time.perf_counter() - began) / repeats
    kinds = (times.forward, times.backward, times.beside)
    return Times(*({name: seconds / repeats for name, seconds in kind.items()} for kind in kinds)), whole
