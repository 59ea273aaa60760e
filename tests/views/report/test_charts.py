"""The curves' points stand where their values say."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from numpy_vit.views.report import charts

ROWS = [
    {"epoch": 1, "train_loss": 2.0, "test_loss": 1.5, "test_accuracy": 0.25, "learning_rate": 0.1},
    {"epoch": 2, "train_loss": 1.0, "test_loss": math.nan, "test_accuracy": 0.5, "learning_rate": 0.05},
    {"epoch": 3, "train_loss": 0.5, "test_loss": 0.75, "test_accuracy": 0.75, "learning_rate": 0.0},
]


def ticks(chart, kind):
    """Pairs of an axis's label and its place: y for "end", x for "middle"."""
    return [
        (float(one.words), float(one.attributes["y" if kind == "end" else "x"]))
        for one in chart.children
        if one.name == "text" and one.attributes["class"] == kind and one.words != "epoch"
    ]


def values(chart, part):
    """What a line says, by the axes' own labels."""
    dots = [one for one in chart.children if one.name == "circle" and one.attributes["class"] == part]
    across, down = (np.polyfit(*np.array(ticks(chart, kind)).T[::-1], 1) for kind in ("middle", "end"))
    return [
        (
            float(np.polyval(across, float(one.attributes["cx"]))),
            float(np.polyval(down, float(one.attributes["cy"]) + 4)),
        )
        for one in dots
    ]


def test_points_read_by_the_axes_are_the_values(read):
    loss, accuracy = read(charts.curves(ROWS)).named("svg")
    np.testing.assert_allclose(values(loss, "train"), [(1, 2), (2, 1), (3, 0.5)], atol=0.02)
    np.testing.assert_allclose(values(loss, "test"), [(1, 1.5), (3, 0.75)], atol=0.02)
    np.testing.assert_allclose(values(accuracy, "test"), [(1, 25), (2, 50), (3, 75)], atol=0.5)
    assert values(accuracy, "train") == []
    assert "train ends at 0.5" in loss.attributes["aria-label"]


def test_what_is_not_finite_is_a_gap(read):
    loss, _ = read(charts.curves(ROWS)).named("svg")
    steps = {one.attributes["class"]: one.attributes["d"] for one in loss.children if one.name == "path"}
    assert re.sub(r"[^ML]", "", steps["line train"]) == "MLL"
    assert re.sub(r"[^ML]", "", steps["line test"]) == "MM"


def test_every_number_stands_in_the_table(read):
    rows = [[cell.words for cell in row.children] for row in read(charts.curves(ROWS)).named("tr")]
    assert rows[0] == ["epoch", "train loss", "test loss", "test accuracy", "learning rate"]
    assert rows[2] == ["2", "1", "nan", "0.5", "0.05"]


def test_the_loss_has_its_unit(read):
    titles = [one.words for one in read(charts.curves(ROWS)).all if one.attributes.get("class") == "title"]
    assert titles == ["loss (cross-entropy, nats)", "accuracy (%)"]
    pretrained = [{"epoch": row["epoch"], "train_loss": row["train_loss"]} for row in ROWS]
    titles = [one.words for one in read(charts.curves(pretrained)).all if one.attributes.get("class") == "title"]
    assert titles == ["loss (mean squared error)"]


@pytest.mark.parametrize(
    "rows",
    [
        ROWS[:1], [{"train_loss": math.inf}], [{}], [{"epoch": 5, "train_loss": 1e300}] * 2,
        [{"epoch": math.nan, "train_loss": 1.0}, {"epoch": 10**400, "train_loss": 10**400}],
    ],
)  # fmt: skip
def test_odd_runs_are_drawn(read, rows):
    page = read(charts.curves(rows))
    assert "nan" not in "".join(str(one.attributes) for one in page.all if one.name in ("path", "circle"))
