"""What a comparison found, and how it reads: the verdict, the diagnosis, then the table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from numpy_vit.checks.judge import Row
from numpy_vit.checks.precision import PRECISIONS

SCHEMA = "numpy_vit.compare/1"
_LAYOUT = "{:{name}}  {:>{shape}}  {:>7}  {:>7}  {:>9}  {:>8}  {:>8}  {}"
_HEAD = ("tensor", "shape", "max abs", "max rel", "reference", "ours", "allowed", "")


@dataclass(frozen=True)
class Cause:
    """A difference, and what explains it.

    Parameters
    ----------
    tensor : the first that differs
    name : of the mistake; "" where nothing that was tried explains it
    before, after : the largest difference at the tensor, without and with the cause applied
    text : the same in words
    """

    tensor: str
    name: str
    before: float
    after: float | None
    text: str

    def to_json(self) -> dict[str, Any]:
        """Return the fields; infinity becomes None."""
        return {key: None if value == math.inf else value for key, value in asdict(self).items()}


@dataclass(frozen=True)
class Comparison:
    """The result of a comparison; `print` it, or `raise_if_different()`.

    Parameters
    ----------
    same : whether everything compared differs by no more than rounding
    dtype : the reference's
    causes : why not, one after the other
    rows : every tensor compared, in order
    notes : what was not compared, and what this comparison cannot show
    """

    same: bool
    dtype: str
    causes: tuple[Cause, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()

    @property
    def first(self) -> str | None:
        """The first tensor that differs."""
        return self.causes[0].tensor if self.causes else None

    def raise_if_different(self) -> None:
        """Raise AssertionError with the whole report unless everything is the same."""
        if not self.same:
            raise AssertionError(str(self))

    def to_json(self) -> dict[str, Any]:
        """Return what a program wants to know; the layout of this object is named by its schema."""
        return {
            "schema": SCHEMA,
            "same": self.same,
            "dtype": self.dtype,
            "first_difference": self.first,
            "causes": [cause.to_json() for cause in self.causes],
            "notes": list(self.notes),
            "tensors": [row.to_json() for row in self.rows],
        }

    def __str__(self) -> str:
        lines = [self._verdict(), *(f"{i}. {cause.text}" for i, cause in enumerate(self.causes, 1))]
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join([*lines, "", self.table()])

    def _verdict(self) -> str:
        if not self.same:
            return f"DIFFERENT: the first tensor that differs is {self.first}"
        gradients = sum(row.name.startswith("gradient of ") for row in self.rows)
        compared = f"{len(self.rows) - gradients} outputs" + (f" and {gradients} gradients" if gradients else "")
        return f"SAME: {compared} differ by no more than {self.dtype} rounding explains{self._whose()}"

    def _whose(self) -> str:
        """Whose rounding dominates at the logits."""
        logits = next((row for row in self.rows if row.name == "logits"), None)
        if logits is None or not logits.whose:
            return ""
        share = f"{logits.reference_units:.1f} and {logits.our_units:.1f} roundings from float64"
        whose = {"theirs": "mostly the reference's", "ours": "mostly ours", "both": "the reference's and ours alike"}
        return f"; at the logits it is {whose[logits.whose]} ({share})"

    def table(self) -> str:
        """Return every tensor compared, a line each; columns "reference", "ours" and "allowed" are in roundings."""
        marked = False
        widths = {
            "name": max((len(row.name) for row in self.rows), default=6),
            "shape": max((len(_shape(row)) for row in self.rows), default=5),
        }
        lines = [
            f"how far the reference and we are from our model in float64, in roundings of {self.dtype}: "
            f"{PRECISIONS[self.dtype]:.1e} of the largest entry",
            _LAYOUT.format(*_HEAD, **widths).rstrip(),
        ]
        for row in self.rows:
            mark = "" if row.same else "differs" if marked else "<-- FIRST"
            marked = marked or not row.same
            lines.append(_LAYOUT.format(*_cells(row), mark or row.whose, **widths).rstrip())
        return "\n".join(lines)


def _cells(row: Row) -> Sequence[str]:
    ours = "-" if row.our_units is None else _units(row.our_units)
    return (
        row.name, _shape(row), f"{row.max_abs:.1e}", f"{row.max_rel:.1e}", _units(row.reference_units), ours,
        _units(row.allowed_units),
    )  # fmt: skip


def _shape(row: Row) -> str:
    return "x".join(map(str, row.shape)) or "()"


def _units(value: float) -> str:
    return f"{value:.1f}" if value < 1e4 else f"{value:.1e}"
