"""Which parameters stay as they are, and the form of the model that computes nothing for them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from fnmatch import fnmatchcase
from types import ModuleType
from typing import Any

from numpy_vit.models import partly_frozen, vit
from numpy_vit.training.groups import STEM


def frozen_names(names: Iterable[str], patterns: str | None) -> set[str]:
    """Return which parameters some patterns freeze.

    Parameters
    ----------
    names : of all parameters, such as "blocks.3.attn.qkv.weight"
    patterns : separated by commas; each is the name of a parameter or of what it is part of, in which * stands for
        anything: "patch_embed,blocks.*.attn".  "stem" is all before the blocks, "body" all but the head.  None freezes
        nothing

    Raises
    ------
    ValueError : a pattern that fits no parameter, or patterns that leave nothing to learn.
    """
    every, frozen = list(names), set()
    for pattern in [] if patterns is None else patterns.split(","):
        if pattern == "body":
            fitting = {name for name in every if not name.startswith("head")}
        elif pattern == "stem":
            fitting = {name for name in every if name.split(".")[0] in STEM}
        else:
            fitting = {name for name in every if fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*")}
        if not fitting:
            raise ValueError(f"nothing to freeze is called {pattern!r}: the parameters are {', '.join(every[:8])}, ...")
        frozen |= fitting
    if frozen and len(frozen) == len(every):
        raise ValueError(f"{patterns!r} freezes every parameter: leave one to learn, such as the head")
    return frozen


def training_form(model: ModuleType, config: Any, names: Iterable[str], frozen: set[str]) -> tuple[ModuleType, Any]:
    """Return the model's module and configuration that make the gradients of what is not frozen.

    Where the stem is frozen, and with it perhaps the first blocks, those compute no gradients and keep no caches.
    Frozen parameters behind one that learns are passed by its gradient all the same: theirs are computed, and dropped.
    """
    every = list(names)
    learning = [name for name in every if name not in frozen]
    if model is not vit or not frozen or any(name.split(".")[0] in STEM for name in learning):
        return model, config
    learning_blocks = {int(name.split(".")[1]) for name in learning if name.startswith("blocks.")}
    first = min(learning_blocks, default=config.depth)
    return partly_frozen, partly_frozen.Config(**{**asdict(config), "frozen_blocks": first})
