"""What loading a checkpoint found, took for granted and left out, for people and for programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy_vit.checkpoints.layouts import Assumption

_LISTED = 8  # names of a kind that the text shows


@dataclass(frozen=True)
class Report:
    """How a checkpoint was understood.

    Parameters
    ----------
    path : the file
    layout, family : its naming, and whose conventions hold
    unwrapped : containers and prefixes taken off, outermost first
    inferred : fields that the tensors determine
    assumed : fields that they do not, with the reason
    stated : fields that the file's metadata or a config.json beside it gave, and which of them
    overridden : fields that the caller gave
    resized : what was interpolated, in words
    missing, misshaped : our names of weights that were not there, or not of the right shape, and were drawn anew
    unexpected, ignored : the file's names that nothing here takes, and those that are known to be something else
    warnings : what looks wrong about the numbers
    """

    path: str
    layout: str
    family: str
    unwrapped: tuple[str, ...] = ()
    inferred: tuple[tuple[str, Any], ...] = ()
    assumed: tuple[Assumption, ...] = ()
    stated: tuple[tuple[str, Any, str], ...] = ()
    overridden: tuple[tuple[str, Any], ...] = ()
    resized: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    misshaped: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain dicts, lists and values."""
        return {
            "path": self.path,
            "layout": self.layout,
            "family": self.family,
            "unwrapped": list(self.unwrapped),
            "inferred": {name: _plain(value) for name, value in self.inferred},
            "assumed": [{"field": a.field, "value": _plain(a.value), "why": a.why} for a in self.assumed],
            "stated": [{"field": name, "value": _plain(value), "by": by} for name, value, by in self.stated],
            "overridden": {name: _plain(value) for name, value in self.overridden},
            **{name: list(getattr(self, name)) for name in ("resized", "missing", "misshaped")},
            **{name: list(getattr(self, name)) for name in ("unexpected", "ignored", "warnings")},
        }

    def __str__(self) -> str:
        lines = [f"{self.path}: layout {self.layout}, family {self.family}"]
        if self.unwrapped:
            lines.append(f"  unwrapped: {' '.join(self.unwrapped)}")
        if self.inferred:
            lines.append("  inferred: " + ", ".join(f"{name} {value}" for name, value in self.inferred))
        lines += [f"  stated by {by}: {name} {value}" for name, value, by in self.stated]
        lines += [f"  given: {name} {value}" for name, value in self.overridden]
        lines += [f"  ASSUMED {a.field} {a.value}: {a.why}" for a in self.assumed]
        lines += [f"  resized: {text}" for text in self.resized]
        for kind in ("missing", "misshaped", "unexpected", "ignored"):
            names = getattr(self, kind)
            if names:
                more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
                lines.append(f"  {kind}: {', '.join(names[:_LISTED])}{more}")
        lines += [f"  WARNING: {text}" for text in self.warnings]
        return "\n".join(lines)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
