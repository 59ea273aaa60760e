"""The time of each layer, forward and backward, exclusive of the layers that it calls."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from inspect import isfunction
from types import ModuleType
from typing import Any


@dataclass
class LayerTimes:
    """Seconds by the layer's name: its own, not those of the layers below it."""

    forward: dict[str, float] = field(default_factory=dict)
    backward: dict[str, float] = field(default_factory=dict)

    @property
    def total(self) -> float:
        """The seconds of all layers together."""
        return sum(self.forward.values()) + sum(self.backward.values())


@dataclass
class _Call:
    backward: bool
    below: float = 0.0  # seconds in the calls that it made


def loaded_layers() -> list[ModuleType]:
    """Return the modules of layers and models that something has imported: those with a forward and a backward."""
    rooms = ("numpy_vit.layers.", "numpy_vit.models.")
    modules = [module for name, module in sorted(sys.modules.items()) if name.startswith(rooms)]
    return [module for module in modules if hasattr(module, "forward") and hasattr(module, "backward")]


@contextmanager
def watched(modules: Iterable[ModuleType]) -> Iterator[LayerTimes]:
    """Time the functions of layers for the duration of the block, in which one thread alone may use them.

    Layers call each other through their modules, so the modules' functions are wrapped, and put back at the end
    whatever happens.  A function whose name says backward, and all that it calls, is the backward.
    """
    times = LayerTimes()
    calls: list[_Call] = []
    originals = [
        (module, name, function)
        for module in modules
        for name, function in vars(module).items()
        if isfunction(function)
        and function.__module__ == module.__name__
        and not name.startswith("_")
        and name != "init"
    ]
    try:
        for module, name, function in originals:
            setattr(module, name, _timed(function, module.__name__.rpartition(".")[2], times, calls))
        yield times
    finally:
        for module, name, function in originals:
            setattr(module, name, function)


def _timed(function: Callable[..., Any], layer: str, times: LayerTimes, calls: list[_Call]) -> Callable[..., Any]:
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
            own = times.backward if call.backward else times.forward
            own[layer] = own.get(layer, 0.0) + seconds - call.below

    return timed


def layer_times(run: Callable[[], Any], repeats: int = 3) -> tuple[LayerTimes, float]:
    """Return the mean times of the layers in `run`, which uses one thread, and those of the whole run.

    What the run takes beyond its layers is the sum of the shards' gradients and the optimizer.
    """
    began = time.perf_counter()
    with watched(loaded_layers()) as times:
        for _ in range(repeats):
            run()
    whole = (time.perf_counter() - began) / repeats
    mean = [{name: seconds / repeats for name, seconds in part.items()} for part in (times.forward, times.backward)]
    return LayerTimes(*mean), whole
