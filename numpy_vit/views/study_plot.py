"""The picture of a study: the accuracy that each arm reached with each seed, and the means."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

from PIL import Image

from numpy_vit.files import replacing
from numpy_vit.views.plot import BLUE, GREY, GRID, INK, VERMILION, Canvas, fit, text_width
from numpy_vit.views.scales import extent, tick_labels, ticks

WIDTH = 900
_MARGIN, _TITLE, _LEGEND, _ROW, _AXIS = 16, 34, 28, 52, 50
_LONGEST = 240  # pixels for an arm's label
_BETWEEN = 8  # pixels between the heights of two seeds, where there is room


def draw(accuracies: Mapping[str, Sequence[float]], path: str | os.PathLike[str], title: str = "") -> None:
    """Write the picture as a PNG file, whole or not at all; the parameters are those of `picture`, and the file."""
    image = picture(accuracies, title)
    with replacing(path) as file:
        image.save(file, format="PNG", optimize=True)


def picture(accuracies: Mapping[str, Sequence[float]], title: str = "") -> Image.Image:
    """Draw a row for each arm: a dot for each seed, a line from the least to the greatest, and a bar at the mean.

    A seed has the same height in every row, so that a pair of dots can be found.

    Parameters
    ----------
    accuracies : label: a fraction for each seed
    title : stands above

    Returns
    -------
    image : RGB, WIDTH wide

    Raises
    ------
    ValueError : no arms, or an arm without accuracies.
    """
    if not accuracies or not all(map(len, accuracies.values())):
        raise ValueError("a study's picture needs at least one arm, and an accuracy of each")
    percents = {label: [100 * value for value in values] for label, values in accuracies.items()}
    means = {label: sum(values) / len(values) for label, values in percents.items()}
    low, high = extent([value for values in percents.values() for value in values], within=(0.0, 100.0))
    top = _MARGIN + (_TITLE if title else 0) + _LEGEND
    bottom = top + _ROW * len(percents)
    canvas = Canvas(WIDTH, bottom + _AXIS)
    left = _MARGIN + min(_LONGEST, max(text_width(label, 13) for label in percents)) + 16
    right = WIDTH - _MARGIN - text_width("100.00", 13) - 16

    def x(value: float) -> float:
        return left + (value - low) / (high - low) * (right - left)

    if title:
        canvas.text(_MARGIN, _MARGIN + 10, fit(title, WIDTH - 2 * _MARGIN, 16), 16)
    _legend(canvas, left, top - _LEGEND / 2 - 2)
    canvas.text(WIDTH - _MARGIN, top - _LEGEND / 2 - 2, "mean", 12, GREY, 1.0)
    _axis(canvas, x, (low, high), (top, bottom))
    for number, (label, values) in enumerate(percents.items()):
        middle = top + _ROW * (number + 0.5)
        canvas.text(left - 16, middle, fit(label, _LONGEST, 13), 13, INK, 1.0)
        canvas.line([(x(min(values)), middle), (x(max(values)), middle)], GREY, 1.5)
        canvas.line([(x(means[label]), middle - 17), (x(means[label]), middle + 17)], VERMILION, 3)
        _dots(canvas, [x(value) for value in values], middle)
        canvas.text(WIDTH - _MARGIN, middle, f"{means[label]:.2f}", 13, INK, 1.0)
    return canvas.finish()


def _legend(canvas: Canvas, left: float, y: float) -> None:
    canvas.dot(left + 4, y, BLUE, 4)
    canvas.text(left + 14, y, "a seed")
    left += 14 + text_width("a seed", 12) + 24
    canvas.line([(left, y - 7), (left, y + 7)], VERMILION, 3)
    canvas.text(left + 8, y, "mean of the seeds")


def _axis(
    canvas: Canvas, x: Callable[[float], float], ends: tuple[float, float], rows: tuple[float, float]
) -> None:  # fmt: skip
    top, bottom = rows
    values = ticks(*ends)
    for value, label in zip(values, tick_labels(values), strict=True):
        canvas.line([(x(value), top), (x(value), bottom + 4)], GRID)
        canvas.text(x(value), bottom + 14, label, colour=GREY, align=0.5)
    canvas.line([(x(ends[0]), bottom), (x(ends[1]), bottom)], GREY)
    canvas.text((x(ends[0]) + x(ends[1])) / 2, bottom + 36, "test accuracy (%)", align=0.5)


def _dots(canvas: Canvas, columns: Sequence[float], middle: float) -> None:
    apart = min(_BETWEEN, (_ROW - 16) / len(columns))
    for seed, column in enumerate(columns):
        canvas.dot(column, middle + (seed - (len(columns) - 1) / 2) * apart, BLUE, 4)
