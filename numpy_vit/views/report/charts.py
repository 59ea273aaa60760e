"""The curves of a run as SVG drawings in the page, in its own colours."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from numpy_vit.views.curves import loss_title, number
from numpy_vit.views.report.markup import escape, opening, table, tag
from numpy_vit.views.scales import compact, drawable, extent, tick_labels, ticks

_WIDTH, _HEIGHT = 460, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 14, 46, 44  # margins, for the titles and the ticks' labels
_DOTS = 40  # with more points, dots hide the line
_PARTS = ("train", "test")

Row = Mapping[str, Any]
Points = Sequence[tuple[float, float]]


def curves(rows: Sequence[Row]) -> str:
    """Return loss and accuracy over the epochs, and all numbers as a table to open.

    Parameters
    ----------
    rows : one an epoch, as in metrics.jsonl; what is not finite is a gap, what is missing none
    """
    xs, loss = _epochs(rows), loss_title(rows)
    charts = []
    for quantity, title, factor, most in (("loss", loss, 1.0, math.inf), ("accuracy", "accuracy (%)", 100.0, 100.0)):
        lines = {part: _points(rows, xs, f"{part}_{quantity}", factor) for part in _PARTS}
        lines = {part: points for part, points in lines.items() if any(drawable(y) for _, y in points)}
        if lines:
            charts.append(_chart(title, xs, lines, most))
    return tag("div", "\n".join(charts), class_="charts") + _numbers(rows)


def _chart(title: str, xs: Sequence[float], lines: Mapping[str, Points], most: float) -> str:
    low, high = extent([y for points in lines.values() for _, y in points], within=(0.0, most))
    left, right = (min(xs), max(xs)) if min(xs) < max(xs) else (min(xs) - 0.5, min(xs) + 0.5)

    def place(x: float, y: float) -> tuple[float, float]:
        across = (x - left) / (right - left) * (_WIDTH - _LEFT - _RIGHT)
        return _LEFT + across, _HEIGHT - _BOTTOM - (y - low) / (high - low) * (_HEIGHT - _TOP - _BOTTOM)

    marks = _y_axis(ticks(low, high, 5), place, left) + _x_axis(ticks(left, right, 6, whole=True), place, low)
    drawn = [_line(part, points, place) for part, points in lines.items()]
    words = [_text(_LEFT, 18, title, "title"), _text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 8, "epoch", "middle")]
    after = _LEFT
    for part, points in lines.items():
        last = next((y for _, y in reversed(points) if not math.isnan(y)), math.nan)
        words.append(_text(after, 36, f"— {part} {compact(last)}", part))
        after += 150
    said = "; ".join(f"{part} ends at {compact(points[-1][1])}" for part, points in lines.items())
    label = f"{title} over {len(xs)} epochs: {said}"
    content = "\n".join([*marks, *drawn, *words])
    return tag("svg", content, viewBox=f"0 0 {_WIDTH} {_HEIGHT}", role="img", aria_label=label, class_="chart")


def _y_axis(values: Sequence[float], place: Any, left: float) -> list[str]:
    parts = []
    for value, label in zip(values, tick_labels(values), strict=True):
        x, y = place(left, value)
        parts.append(_path(f"M{x:.1f} {y:.1f}H{_WIDTH - _RIGHT}", "grid"))
        parts.append(_text(x - 8, y + 4, label, "end"))
    return parts


def _x_axis(values: Sequence[float], place: Any, low: float) -> list[str]:
    parts = []
    for value, label in zip(values, tick_labels(values), strict=True):
        x, y = place(value, low)
        parts.append(_path(f"M{x:.1f} {y:.1f}v5", "tick"))
        parts.append(_text(x, y + 20, label, "middle"))
    return parts


def _line(part: str, points: Points, place: Any) -> str:
    steps, pen_down, dots = [], False, []
    for x, y in points:
        if not drawable(y):
            pen_down = False
            continue
        across, down = place(x, y)
        steps.append(f"{'L' if pen_down else 'M'}{across:.1f} {down:.1f}")
        dots.append(tag("circle", cx=f"{across:.1f}", cy=f"{down:.1f}", r=3, class_=part))
        pen_down = True
    return _path("".join(steps), f"line {part}") + ("".join(dots) if len(dots) <= _DOTS else "")


def _path(steps: str, kind: str) -> str:
    return tag("path", d=steps, class_=kind)


def _text(x: float, y: float, words: str, kind: str) -> str:
    return f"{opening('text', x=f'{x:.1f}', y=f'{y:.1f}', class_=kind)}{escape(words)}</text>"


def _numbers(rows: Sequence[Row]) -> str:
    known = ("train_loss", "test_loss", "train_accuracy", "test_accuracy", "learning_rate")
    keys = [key for key in known if any(number(row.get(key)) is not None for row in rows)]
    cells = [
        [compact(epoch), *(_cell(number(row.get(key))) for key in keys)]
        for epoch, row in zip(_epochs(rows), rows, strict=True)
    ]
    header = ["epoch", *(key.replace("_", " ") for key in keys)]
    listed = table("Every epoch", header, cells, numbers=range(len(header)))
    return tag("details", tag("summary", "The numbers") + listed)


def _epochs(rows: Sequence[Row]) -> list[float]:
    """Each row's epoch; where it has none, its place."""
    named = [number(row.get("epoch")) for row in rows]
    return [epoch if epoch and drawable(epoch) else float(i) for i, epoch in enumerate(named, 1)]


def _cell(value: float | None) -> str:
    return "–" if value is None else compact(value)


def _points(rows: Sequence[Row], xs: Sequence[float], key: str, factor: float) -> list[tuple[float, float]]:
    """The epochs that have a number, which not every one has of the test part, and these numbers."""
    ys = [number(row.get(key)) for row in rows]
    return [(x, factor * y) for x, y in zip(xs, ys, strict=True) if y is not None]
