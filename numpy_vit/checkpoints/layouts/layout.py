"""What a layout is: a name, rules in both directions, and what the tensors do not say."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from numpy_vit.checkpoints.layouts.rules import Geometry, Rule, Tensors
from numpy_vit.errors import CheckpointError
from numpy_vit.models import vit
from numpy_vit.tree import Array


@dataclass(frozen=True)
class Assumption:
    """A field that the tensors do not determine, the value taken for it, and why that one."""

    field: str
    value: Any
    why: str


def _unchanged(tensors: Tensors) -> Tensors:
    return tensors


@dataclass(frozen=True)
class Layout:
    """One way to name and shape a Vision Transformer's tensors, as one file has it.

    Parameters
    ----------
    name : of the layout, "hf-vit"
    family : whose conventions hold (a key of families.FAMILIES): eps, GELU, resizing, preprocessing
    rules : from their keys to ours and back
    fields : fields of the model's Config that this layout implies and no shape shows
    assumed : what it leaves open, beyond the family's conventions
    ignored : regular expressions for whole keys that belong to something else than the model
    model : the module of models/ whose parameters these are
    pixels : where the patch projection is a matrix, its columns C·py·px, of which no shape says C
    open, close : applied to the tensors before `unpack` and after `pack`, such as cutting a stack of blocks apart
    """

    name: str
    family: str
    rules: tuple[Rule, ...]
    fields: Mapping[str, Any] = field(default_factory=dict)
    assumed: tuple[Assumption, ...] = ()
    ignored: tuple[str, ...] = ()
    model: ModuleType = vit
    pixels: int = 0
    open: Callable[[Tensors], Tensors] = _unchanged
    close: Callable[[Tensors], Tensors] = _unchanged

    def unpack(self, tensors: Tensors, geometry: Geometry) -> dict[str, Array]:
        """Return the tensors under our keys and in our shapes; those that no rule names are left out.

        Raises
        ------
        CheckpointError : a tensor whose shape a rule cannot take apart.
        """
        tensors = self.open(tensors)
        flat: dict[str, Array] = {}
        for rule in expanded(self.rules, blocks(self.rules, tensors)):
            if all(key in tensors for key in rule.theirs):
                arrays = [tensors[key] for key in rule.theirs]
                try:
                    flat.update(zip(rule.ours, rule.unpack(arrays, geometry), strict=True))
                except ValueError as error:
                    shapes = ", ".join(f"{key} {tensors[key].shape}" for key in rule.theirs)
                    raise CheckpointError(f"{shapes} cannot be {' and '.join(rule.ours)}: {error}") from error
        return flat

    def pack(self, flat: Tensors, geometry: Geometry) -> dict[str, Array]:
        """Return our tensors in this layout; those that it cannot hold are left out."""
        tensors: dict[str, Array] = {}
        for rule in expanded(self.rules, depth(flat)):
            if all(key in flat for key in rule.ours):
                arrays = [flat[key] for key in rule.ours]
                tensors.update(zip(rule.theirs, rule.pack(arrays, geometry), strict=True))
        return dict(self.close(tensors))

    def sources(self, tensors: Tensors, count: int) -> dict[str, tuple[str, ...]]:
        """Return, for each of our keys in `count` blocks, the keys of theirs that it is made of."""
        rules = list(expanded(self.rules, max(count, blocks(self.rules, self.open(tensors)))))
        return {key: rule.theirs for rule in rules for key in rule.ours}

    def left_over(self, tensors: Tensors, ours: Collection[str]) -> tuple[list[str], list[str]]:
        """Return the keys of theirs that none of `ours` is made of: unexpected ones, and those known to be ignored."""
        opened = self.open(tensors)
        rules = expanded(self.rules, blocks(self.rules, opened))
        taken = {key for rule in rules if set(rule.ours) & set(ours) for key in rule.theirs}
        known = re.compile("|".join(f"(?:{pattern})" for pattern in self.ignored) or "(?!)")
        rest = [key for key in opened if key not in taken]
        unexpected = [key for key in rest if not known.fullmatch(key) and opened[key].size]
        return unexpected, [key for key in rest if known.fullmatch(key)]


def expanded(rules: tuple[Rule, ...], count: int) -> Iterator[Rule]:
    """Put every block's index in place of "{i}"."""
    for rule in rules:
        if not any("{i}" in key for key in rule.ours):
            yield rule
            continue
        for i in range(count):
            ours = tuple(key.replace("{i}", str(i)) for key in rule.ours)
            yield Rule(ours, tuple(key.replace("{i}", str(i)) for key in rule.theirs), rule.unpack, rule.pack)


def blocks(rules: tuple[Rule, ...], tensors: Tensors) -> int:
    """Return the number of blocks: one more than the largest index that stands for "{i}" in any key."""
    templates = sorted({re.escape(key) for rule in rules for key in rule.theirs if "{i}" in key})
    pattern = re.compile("|".join(key.replace(r"\{i\}", r"(\d+)", 1) for key in templates) or "(?!)")
    found = [match for key in tensors if (match := pattern.fullmatch(key)) and match.lastindex]
    return max((int(match.group(match.lastindex or 0)) + 1 for match in found), default=0)


def depth(flat: Tensors) -> int:
    """Return the number of blocks among our keys."""
    indices = [int(match[1]) for key in flat if (match := re.match(r"blocks\.(\d+)\.", key))]
    return max(indices, default=-1) + 1
