"""Two checkpoints tensor by tensor."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from numpy_vit.checks.causes import alternatives
from numpy_vit.checks.port import Flat, Port
from numpy_vit.checks.precision import distance, largest, rounded

SCHEMA = "numpy_vit.compare-weights/1"
_LAYOUT = "{:40}  {:>17}  {:>8}  {:>8}  {}"


@dataclass(frozen=True)
class WeightRow:
    """One tensor of both checkpoints, under our name; a shape is None where a checkpoint lacks it."""

    name: str
    shapes: tuple[tuple[int, ...] | None, tuple[int, ...] | None]
    max_abs: float
    max_rel: float
    same: bool


@dataclass(frozen=True)
class WeightComparison:
    """The result of comparing two checkpoints; `print` it.

    Parameters
    ----------
    same : every tensor is the same, bit for bit or up to the format that one of them is stored in
    rounding : "bfloat16", "float16" or "float32" where one is the other rounded to it; "" where bits are equal
    causes : what makes the second of the first, in words
    rows : every tensor
    """

    same: bool
    rounding: str
    causes: tuple[str, ...]
    rows: tuple[WeightRow, ...]

    def to_json(self) -> dict[str, Any]:
        """Return what a program wants to know."""
        rows = [
            {
                "name": row.name,
                "shapes": [None if shape is None else list(shape) for shape in row.shapes],
                "max_abs": row.max_abs if np.isfinite(row.max_abs) else None,
                "max_rel": row.max_rel if np.isfinite(row.max_rel) else None,
                "same": row.same,
            }
            for row in self.rows
        ]
        return {
            "schema": SCHEMA, "same": self.same, "rounding": self.rounding or None, "causes": list(self.causes),
            "tensors": rows,
        }  # fmt: skip

    def __str__(self) -> str:
        wrong = [row for row in self.rows if not row.same]
        if self.same:
            how = f"the same up to rounding to {self.rounding}" if self.rounding else "equal bit for bit"
            verdict = f"SAME: {len(self.rows)} tensors are {how}"
        else:
            verdict = f"DIFFERENT: {len(wrong)} of {len(self.rows)} tensors differ, the first is {wrong[0].name}"
        lines = [verdict, *(f"{i}. {cause}" for i, cause in enumerate(self.causes, 1)), ""]
        lines.append(_LAYOUT.format("tensor", "shape", "max abs", "max rel", "").rstrip())
        for row in self.rows:
            shapes = list(dict.fromkeys("missing" if s is None else "x".join(map(str, s)) for s in row.shapes))
            mark = "" if row.same else "<-- differs"
            cells = (row.name, " / ".join(shapes), f"{row.max_abs:.1e}", f"{row.max_rel:.1e}", mark)
            lines.append(_LAYOUT.format(*cells).rstrip())
        return "\n".join(lines)


def compare_weights(first: Port, second: Flat) -> WeightComparison:
    """Compare the parameters of a model with others under the same keys.

    Parameters
    ----------
    first : a model
    second : the other checkpoint's parameters, under our keys
    """
    for rounding in ("", "float32", "bfloat16", "float16"):
        rows = tuple(_rows(first.params, second, rounding))
        if all(row.same for row in rows):
            return WeightComparison(True, rounding, (), rows)
    return WeightComparison(False, "", tuple(_causes(first, second)), tuple(_rows(first.params, second, "")))


def _rows(first: Flat, second: Flat, rounding: str) -> Iterable[WeightRow]:
    for name in dict.fromkeys([*first, *second]):
        a, b = first.get(name), second.get(name)
        if a is None or b is None:
            shapes = (None if a is None else a.shape, None if b is None else b.shape)
            yield WeightRow(name, shapes, np.inf, np.inf, False)
            continue
        gap, scale = distance(a, b), max(largest(a), largest(b))
        same = gap == 0 or (bool(rounding) and distance(_to(a, rounding), _to(b, rounding)) == 0)
        yield WeightRow(name, (a.shape, b.shape), gap, gap / scale if scale else gap, same)


def _to(array: Any, rounding: str) -> Any:
    return array.astype(np.float32) if rounding == "float32" else rounded(array, rounding)


def _causes(first: Port, second: Flat) -> Iterable[str]:
    """Yield, one after the other, the alternative that makes most of the remaining tensors equal."""
    port, wrong = first, _wrong(first.params, second)
    while wrong:
        trials = [
            (one, changed)
            for one in alternatives(port)
            if (changed := port.changed(one.change)).params is not port.params
        ]
        if not trials:
            return
        best, changed = min(trials, key=lambda trial: len(_wrong(trial[1].params, second)))
        left = _wrong(changed.params, second)
        if len(left) >= len(wrong):
            return
        made = sorted(wrong - left)
        more = f" and {len(made) - 1} more" if len(made) > 1 else ""
        yield f"With {best.applied}, {made[0]}{more} of the first checkpoint equal the second's."
        port, wrong = changed, left


def _wrong(first: Flat, second: Flat) -> set[str]:
    return {
        name
        for name in {*first, *second}
        if name not in first or name not in second or not np.array_equal(first[name], second[name])
    }
