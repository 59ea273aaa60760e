"""Handing results over while they are computed: intermediates to a record, gradients to whoever adds them up."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from numpy_vit.tree import Array, Params

Note: TypeAlias = Callable[[str, Array], None]  # the name of timm's module, and its output
Take: TypeAlias = Callable[[str, Params], None]  # where in the tree of parameters, and the gradients there


def ignore(name: str, value: Array) -> None:
    """Drop the value: nobody asked."""


def into(record: dict[str, Array] | None) -> Note:
    """Return a note that stores under its name in `record`, or one that drops where `record` is None."""
    return ignore if record is None else record.__setitem__


def below(note: Note, prefix: str) -> Note:
    """Return a note for the parts of a module: "attn" below "blocks.3" is "blocks.3.attn"."""
    if note is ignore:
        return ignore
    return lambda name, value: note(f"{prefix}.{name}" if name else prefix, value)
