"""Lines lie where the values are, and words fit."""

import math

import numpy as np
import pytest
from PIL import ImageFont

from numpy_vit.views.plot import BLUE, VERMILION, Axes, Canvas, Series, fit, text_width


def pixels(image, colour):
    rgb = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return np.argwhere((np.asarray(image) == rgb).all(axis=-1))


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
