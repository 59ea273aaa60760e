"""Round ticks and axes, and lines that lie where the values are."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import ImageFont

from numpy_vit.views import plot
from numpy_vit.views.plot import BLUE, VERMILION, Axes, Canvas, Series, compact, extent, fit, text_width, tick_labels, ticks


def pixels(image, colour):
    rgb = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return np.argwhere((np.asarray(image) == rgb).all(axis=-1))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((0, 1), [0, 0.2, 0.4, 0.6, 0.8, 1]),
        ((0, 0.3), [0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3]),
        ((0.13, 2.31), [0.5, 1.0, 1.5, 2.0]),
        ((-1, 1), [-1, -0.5, 0, 0.5, 1]),
        ((1, 1000), [200, 400, 600, 800, 1000]),
        ((0, 1e-3), [0, 0.0002, 0.0004, 0.0006, 0.0008, 0.001]),
        ((1, 3, 6, True), [1, 2, 3]),
        ((0.5, 1.5, 6, True), [1]),
        ((1, 30, 6, True), [5, 10, 15, 20, 25, 30]),
    ],
)
def test_ticks_by_hand(arguments, expected):
    assert ticks(*arguments) == expected  # exactly: 0.3, never 0.30000000000000004


@pytest.mark.parametrize("ends", [(1, 1), (2, 1), (0, math.inf), (math.nan, 1), (-1e308, 1e308)])
def test_ticks_refuse_an_impossible_axis(ends):
    with pytest.raises(ValueError, match="finite ends"):
        ticks(*ends)


@given(st.floats(-1e200, 1e200), st.floats(-1e200, 1e200), st.integers(2, 12))
def test_ticks_are_few_distinct_and_inside(low, high, most):
    if not high - low > 1e-9 * max(abs(low), abs(high), 1e-200):
        return
    values = ticks(low, high, most)
    slack = 1e-5 * (high - low)
    assert len(values) <= most + 1
    assert all(low - slack <= value <= high + slack for value in values)
    labels = tick_labels(values)
    assert len(set(labels)) == len(labels)
    np.testing.assert_allclose([float(label) for label in labels], values, rtol=1e-9, atol=slack)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0, 0.5, 1], ["0.0", "0.5", "1.0"]),
        ([0, 20, 40], ["0", "20", "40"]),
        ([0, 5e-6, 1e-5], ["0", "5e-6", "1.0e-5"]),
        ([0, 1e6, 2e6], ["0", "1e6", "2e6"]),
        ([0, 0.0002, 0.001], ["0.0000", "0.0002", "0.0010"]),
        ([1], ["1"]),
        ([0.0], ["0"]),
        ([], []),
    ],
)
def test_tick_labels_by_hand(values, expected):
    assert tick_labels(values) == expected


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (([0.31, 2.2],), (0, 2.5)),
        (([12.0, 99.2],), (0, 100)),
        (([5e-4, 1e-3], [0]), (0, 1e-3)),
        (([math.nan, math.inf, 1.0, 3.0, None or math.nan],), (1, 3)),
        (([],), (0, 1)),
        (([math.nan],), (0, 1)),
        (([0.0, 0.0], [], (0, 100)), (0, 1)),
        (([100.0], [], (0, 100)), (90, 100)),
        (([50.0], [], (0, 100)), (44, 56)),
    ],
)
def test_extent_by_hand(arguments, expected):
    assert extent(*arguments) == pytest.approx(expected)


@given(st.lists(st.floats(width=64)))
def test_extent_holds_whatever_can_be_drawn(values):
    low, high = extent(values)
    assert low < high
    assert all(low <= value <= high for value in values if plot.drawable(value))
    if plot.drawable(low) and plot.drawable(high):
        assert ticks(low, high)


def test_a_line_lies_where_its_values_are():
    canvas = Canvas(500, 400)
    axes = Axes(canvas, (10, 10, 490, 390), (1, 5), (0, 10), "loss", "epoch")
    axes.draw([Series("train", [1, 2, 3, 4, 5], [9, 3, 3, 3, 1], BLUE)])
    found = pixels(canvas.finish(), BLUE)
    found = found[found[:, 0] > axes.top]  # the legend's sample lies above
    assert found[:, 0].min() == pytest.approx(axes.y(9), abs=3)
    assert found[:, 0].max() == pytest.approx(axes.y(1), abs=3)
    assert found[:, 1].min() == pytest.approx(axes.x(1), abs=3)
    assert found[:, 1].max() == pytest.approx(axes.x(5), abs=3)
    middle = found[np.abs(found[:, 1] - round(axes.x(2.5))) <= 1]
    assert len(middle)
    np.testing.assert_allclose(middle[:, 0], axes.y(3), atol=2)


def test_gaps_stay_empty_and_lone_points_are_dots():
    canvas = Canvas(500, 400)
    axes = Axes(canvas, (0, 0, 500, 400), (0, 4), (0, 2), "y", "x")
    axes.draw([Series("a", [0, 1, 2, 3, 4], [1, 1, math.nan, math.inf, 1], BLUE)])
    found = pixels(canvas.finish(), BLUE)
    columns = found[found[:, 0] > axes.top][:, 1]
    assert not ((columns > axes.x(1) + 5) & (columns < axes.x(4) - 5)).any()
    assert (np.abs(columns - axes.x(4)) < 3).any()
    assert (np.abs(columns - axes.x(0.5)) < 3).any()


def test_points_outside_the_axes_are_left_out():
    canvas = Canvas(300, 300)
    axes = Axes(canvas, (0, 0, 300, 300), (0, 1), (0, 1), "y", "x")
    axes.draw([Series("", [0, 1, 2], [5, -1e299, 0.5], BLUE)])
    found = pixels(canvas.finish(), BLUE)
    assert (found[:, 0] < axes.top).all()


def test_two_lines_keep_their_colours_and_the_first_lies_on_top():
    canvas = Canvas(300, 300)
    axes = Axes(canvas, (0, 0, 300, 300), (0, 1), (0, 1), "y", "x")
    axes.draw([Series("a", [0, 1], [0.5, 0.5], BLUE), Series("b", [0, 1], [0.5, 0.5], VERMILION)])
    image = canvas.finish()
    assert (pixels(image, BLUE)[:, 0] > axes.top).any()
    assert not (pixels(image, VERMILION)[:, 0] > axes.top).any()


def test_series_of_unequal_length_are_refused():
    axes = Axes(Canvas(300, 300), (0, 0, 300, 300), (0, 1), (0, 1), "y", "x")
    with pytest.raises(ValueError, match="shorter"):
        axes.draw([Series("a", [0, 1], [0.5], BLUE)])


def test_text_is_cut_to_fit():
    assert fit("loss", 100, 12) == "loss"
    cut = fit("a long heading " * 20, 100, 12)
    assert cut.startswith("a long") and cut.endswith("...") and text_width(cut, 12) <= 100
    assert fit("two\nlines", 1000, 12) == "two lines"
    assert fit("anything", 0, 12) == ""


@pytest.mark.parametrize(("value", "text"), [(0.41234, "0.4123"), (2.5e-5, "2.5e-5"), (math.nan, "nan"), (1e20, "1e20")])
def test_compact(value, text):
    assert compact(value) == text


def test_the_bitmap_font_of_an_old_pillow_will_do(monkeypatch):
    original = ImageFont.load_default
    bitmap = ImageFont.load_default_imagefont() if hasattr(ImageFont, "load_default_imagefont") else original()

    def old(*arguments):
        if arguments:
            raise TypeError("load_default() takes 0 positional arguments but 1 was given")
        return bitmap

    monkeypatch.setattr(ImageFont, "load_default", old)
    canvas = Canvas(300, 300)
    Axes(canvas, (0, 0, 300, 300), (0, 1), (0, 1), "Genauigkeit ü 精度", "x").draw([])
    assert (np.asarray(canvas.finish()).min(axis=-1) < 128).any()
