"""A study's text claims no more than its numbers do."""

from __future__ import annotations

from typing import Any

from numpy_vit.views import study_table


def arm(name: str, mean: float, deviation: float | None, not_finite: int = 0) -> dict[str, Any]:
    return {
        "arm": name, "parameters": 69_066, "tokens": 16, "mean": mean, "deviation": deviation, "least": mean - 0.01,
        "greatest": mean + 0.01, "seconds": 12.34, "not_finite": not_finite,
    }  # fmt: skip


def found(*against: tuple[str, float, float | None, bool | None], **more: Any) -> dict[str, Any]:
    keys = "arm", "difference", "half_width", "beyond_the_spread"
    return {
        "seeds": [0, 1, 2], "arms": [arm("learned", 0.9712, 0.0049), arm("none", 0.9401, None, more.get("lost", 0))],
        "best": "learned", "against_best": [dict(zip(keys, row, strict=True)) for row in against], "test_images": 359,
    }  # fmt: skip


def test_the_whole_text() -> None:
    text = study_table.text(found(("none", -0.0311, 0.0123, True), ("fixed", -0.001, 0.02, False)))
    assert text.splitlines() == [
        "test accuracy over 3 seeds",
        "arm      parameters  tokens  mean %  deviation  least %  greatest %  s a run",
        "-------  ----------  ------  ------  ---------  -------  ----------  -------",
        "learned      69,066      16   97.12       0.49    96.12       98.12     12.3",
        "none         69,066      16   94.01          -    93.01       95.01     12.3",
        "",
        "against the best mean, learned with 97.12 %, seed by seed, in points of accuracy; +- is for 95 %",
        "arm    difference    +-  what it says",
        "-----  ----------  ----  ------------------------",
        "none        -3.11  1.23  worse, beyond the spread",
        "fixed       -0.10  2.00  within the spread",
        "the +- is of seeds alone: all runs share the 359 test images, of which one is 0.28 points;",
        "and it is of one comparison: among many arms, one may stand out by chance",
    ]


def test_without_a_spread_it_says_so() -> None:
    text = study_table.text(found(("none", -0.2, None, None)))
    assert "none      -20.00   -  no spread was seen: run more seeds" in text
    assert "within" not in text and "beyond" not in text


def test_runs_that_were_not_finite_are_named() -> None:
    assert "not finite: none 2 of 3" in study_table.text(found(lost=2))
    assert "not finite" not in study_table.text(found())
