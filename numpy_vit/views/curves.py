"""The curves of a training run as one picture: loss, accuracy and learning rate over the epochs."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any

from PIL import Image

from numpy_vit.files import replacing
from numpy_vit.views.plot import BLUE, GREEN, VERMILION, Axes, Canvas, Series, fit
from numpy_vit.views.scales import compact, drawable, extent

WIDTH, HEIGHT = 1200, 420

Row = Mapping[str, Any]


def draw(rows: Sequence[Row], path: str | os.PathLike[str], title: str = "") -> None:
    """Write the curves of a run as a PNG file, whole or not at all.

    Parameters
    ----------
    rows : one an epoch, as in metrics.jsonl: epoch (or step), train_loss, train_accuracy, test_loss, test_accuracy,
        learning_rate.  Each may be absent or None; that, NaN and infinities are gaps.  Accuracies are fractions.
    path : the file; its folder exists.
    title : stands above the panels.
    """
    image = picture(rows, title)
    with replacing(path) as file:
        image.save(file, format="PNG", optimize=True)


def picture(rows: Sequence[Row], title: str = "") -> Image.Image:
    """Draw the curves of a run; the parameters are those of `draw`.

    Returns
    -------
    image : RGB, WIDTH x HEIGHT
    """
    x_title, xs = _positions(rows)
    loss = _lines(rows, xs, "loss", 1.0, compact)
    accuracy = _lines(rows, xs, "accuracy", 100.0, "{:.2f}%".format)
    rate = []
    if _any(rows, "learning_rate"):
        rate = [Series("last", xs, _column(rows, "learning_rate"), GREEN, compact(_last(rows, "learning_rate")))]

    # Accuracy ends at 100; the learning rate starts at 0, so that its decay is seen in proportion.
    panels = [(loss_title(rows), loss, extent(_values(loss), within=(0.0, math.inf)))]
    if classifies(rows):
        panels.append(("accuracy (%)", accuracy, extent(_values(accuracy), within=(0.0, 100.0))))
    panels.append(("learning rate", rate, extent(_values(rate), include=[0.0], within=(0.0, math.inf))))
    canvas = Canvas(WIDTH, HEIGHT)
    margin, top = 16, 12
    if title:
        canvas.text(margin, 24, fit(title, WIDTH - 2 * margin, 17), 17)
        top = 52
    width = (WIDTH - 2 * margin) / len(panels)
    for i, (name, lines, y_range) in enumerate(panels):
        left = margin + i * width
        box = (left, top, left + width - 12, HEIGHT - 4)
        Axes(canvas, box, _ends(xs), y_range, name, x_title).draw(lines)
    return canvas.finish()


def classifies(rows: Sequence[Row]) -> bool:
    """Return whether a run learns classes: rows of pre-training have no accuracy, not even an empty one."""
    return any("train_accuracy" in row or "test_accuracy" in row for row in rows)


def loss_title(rows: Sequence[Row]) -> str:
    """Return what a run's loss is called, with its unit; pre-training compares pixels."""
    return f"loss ({'cross-entropy, nats' if classifies(rows) else 'mean squared error'})"


def number(value: Any) -> float | None:
    """Return a value of a row as a float, infinity for an int beyond the floats; None for what is no number."""
    if not isinstance(value, Real):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _positions(rows: Sequence[Row]) -> tuple[str, list[float]]:
    for name in ("epoch", "step"):
        if _any(rows, name):
            return name, _column(rows, name)
    return "epoch", [float(i + 1) for i in range(len(rows))]


def _ends(xs: Sequence[float]) -> tuple[float, float]:
    """Return the first and the last position; around a single one there is room."""
    shown = [x for x in xs if drawable(x)] or [0.0, 1.0]
    low, high = min(shown), max(shown)
    if high - low <= 1e-9 * max(abs(low), abs(high), 1.0):
        room = max(0.5, 1e-3 * abs(low))
        return low - room, high + room
    return low, high


def _lines(
    rows: Sequence[Row], xs: Sequence[float], quantity: str, factor: float, note: Callable[[float], str]
) -> list[Series]:
    """Make the train and the test line of a quantity, as far as the run has them."""
    lines = []
    for part, colour in (("train", BLUE), ("test", VERMILION)):
        key = f"{part}_{quantity}"
        if _any(rows, key):
            # an epoch without a test is no gap in the test's line
            points = [
                (x, factor * y) for x, row in zip(xs, rows, strict=True) if (y := number(row.get(key))) is not None
            ]
            places, ys = zip(*points, strict=True)
            lines.append(Series(part, places, ys, colour, note(factor * _last(rows, key))))
    return lines


def _any(rows: Sequence[Row], key: str) -> bool:
    return any(number(row.get(key)) is not None for row in rows)


def _column(rows: Sequence[Row], key: str) -> list[float]:
    numbers = [number(row.get(key)) for row in rows]
    return [math.nan if number is None else number for number in numbers]


def _last(rows: Sequence[Row], key: str) -> float:
    """Return the last value reported, NaN and infinity included: a run that diverged shall say so."""
    numbers = [number(row.get(key)) for row in rows]
    return next((number for number in reversed(numbers) if number is not None), math.nan)


def _values(lines: Sequence[Series]) -> list[float]:
    return [y for line in lines for y in line.ys]
