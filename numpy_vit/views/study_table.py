"""What a study found, as text: a row for each arm, and how each arm differs from the best."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy_vit.views.table import table

_ALIGN = "l r r r r r r r"


def text(found: Mapping[str, Any]) -> str:
    """Return two tables and what the spread does not cover.

    Parameters
    ----------
    found : what studies.summary returns, and test_images
    """
    arms, seeds = found["arms"], len(found["seeds"])
    header = ["arm", "parameters", "tokens", "mean %", "deviation", "least %", "greatest %", "s a run"]
    best = next(arm for arm in arms if arm["arm"] == found["best"])
    parts = [
        f"test accuracy over {seeds} seed{'s' * (seeds > 1)}",
        table([_arm(arm) for arm in arms], header, _ALIGN),
        "",
        f"against the best mean, {best['arm']} with {100 * best['mean']:.2f} %, seed by seed, in points of accuracy; "
        "+- is for 95 %",
        table([_against(row) for row in found["against_best"]], ["arm", "difference", "+-", "what it says"], "l r r l"),
        f"the +- is of seeds alone: all runs share the {found['test_images']:,} test images, of which one is "
        f"{100 / found['test_images']:.2g} points;",
        "and it is of one comparison: among many arms, one may stand out by chance",
    ]
    if stopped := [f"{arm['arm']} {arm['not_finite']} of {seeds}" for arm in arms if arm["not_finite"]]:
        parts.append(f"runs that ended early, since a loss or gradient was not finite: {', '.join(stopped)}")
    return "\n".join(parts)


def verdict(row: Mapping[str, Any]) -> str:
    """Say in words what the difference of an arm from the best one is worth."""
    if row["beyond_the_spread"] is None:
        return "no spread was seen: run more seeds"
    return "worse, beyond the spread" if row["beyond_the_spread"] else "within the spread"


def _arm(arm: Mapping[str, Any]) -> list[str]:
    deviation = "-" if arm["deviation"] is None else f"{100 * arm['deviation']:.2f}"
    shares = (f"{100 * arm[key]:.2f}" for key in ("least", "greatest"))
    return [
        arm["arm"], f"{arm['parameters']:,}", str(arm["tokens"]), f"{100 * arm['mean']:.2f}", deviation, *shares,
        f"{arm['seconds']:.1f}",
    ]  # fmt: skip


def _against(row: Mapping[str, Any]) -> list[str]:
    half = "-" if row["half_width"] is None else f"{100 * row['half_width']:.2f}"
    return [row["arm"], f"{100 * row['difference']:+.2f}", half, verdict(row)]
