"""What a gradient check found, and how it reads."""

from __future__ import annotations

from dataclasses import dataclass

OK = "ok"
WRONG = "is wrong"
ROUGH = "cannot be checked: the forward is too rough (float32 inside, or not continuous here?)"
NOT_CHECKED = "not checked"
EVERYTHING = "everything"  # the row of the direction over all arrays at once


@dataclass(frozen=True)
class Row:
    """One array's result: what was checked, its worst entry or direction, and the verdict.

    Parameters
    ----------
    name : "x", "x.0", "params.weight", ...; "everything" for the direction over all arrays at once.
    checked : "12 entries", "3 directions", or "" where no number was compared.
    index : the worst entry; None for a direction.
    analytic, numeric : the backward's number and the stencil's; None where no number was compared.
    error : |analytic - numeric| / max(|analytic|, |numeric|, floor); infinite where a gradient is unusable.
    verdict : "ok", "not checked: why", or what is wrong.
    """

    name: str
    checked: str
    index: tuple[int, ...] | None
    analytic: float | None
    numeric: float | None
    error: float
    verdict: str

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong with this array."""
        return self.verdict == OK or self.verdict.startswith(NOT_CHECKED)

    @property
    def entry(self) -> str:
        """The worst entry in words: "params.weight[3, 1]: analytic 0.1234, numeric 0.4321"."""
        if self.index is None:
            place = f"{self.name}, along a direction"
        else:
            place = self.name + (str(list(self.index)) if self.index else "")
        return f"{place}: analytic {self.analytic:.10g}, numeric {self.numeric:.10g}"


@dataclass(frozen=True)
class Report:
    """The result of a gradient check; `print` it, or `raise_if_failed()`.

    Parameters
    ----------
    name : of the layer.
    ok : whether every gradient is right.
    rows : one for each array.
    rtol : the largest relative error that passes.
    diagnosis : what is wrong, in words; "" where all is well.
    """

    name: str
    ok: bool
    rows: tuple[Row, ...]
    rtol: float
    diagnosis: str

    @property
    def worst(self) -> Row | None:
        """The row with the largest relative error of those in which numbers were compared."""
        compared = [row for row in self.rows if row.numeric is not None]
        return max(compared, key=lambda row: (not row.ok, row.error), default=None)

    @property
    def worst_error(self) -> float:
        """The largest relative error; infinite where the check failed before numbers could be compared."""
        errors = [row.error for row in self.rows]
        return max(errors) if errors else (0.0 if self.ok else float("inf"))

    def raise_if_failed(self) -> None:
        """Raise AssertionError with the whole report unless every gradient is right."""
        if not self.ok:
            raise AssertionError(str(self))

    def __str__(self) -> str:
        verdict = "ok" if self.ok else "FAILED"
        worst = f"worst relative error {self.worst_error:.1e}, allowed {self.rtol:.0e}"
        lines = [f"{self.name}: {verdict} ({worst})"]
        width = max((len(row.name) for row in self.rows), default=0)
        for row in self.rows:
            error = "" if row.numeric is None else f"{row.error:.1e}"
            lines.append(f"  {row.name:<{width}}  {row.checked:>14}  {error:>8}  {row.verdict}")
        if self.worst is not None:
            lines.append(f"worst: {self.worst.entry}")
        if self.diagnosis:
            lines.append(self.diagnosis)
        return "\n".join(lines)
