"""A study's picture shows every seed and every mean where they are, and is written whole."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from numpy_vit.views import study_plot
from numpy_vit.views.plot import BLUE, VERMILION

TOP = 80  # below the title and the legend


def columns(image, colour, rows=slice(TOP, None)):
    """The pixel columns that have the colour."""
    rgb = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return np.nonzero((np.asarray(image)[rows] == rgb).all(axis=-1).any(axis=0))[0]


def test_dots_and_means_lie_in_proportion():
    """Of 90, 94 and 98 % the middle one lies in the middle, and the mean of 90 and 94 % at a quarter."""
    image = study_plot.picture({"a": [0.9], "b": [0.98], "c": [0.94], "d": [0.9, 0.94]}, "title")
    height = (image.height - TOP - study_plot._AXIS) // 4
    rows = [slice(TOP + i * height, TOP + (i + 1) * height) for i in range(4)]
    a, b, c, d = (columns(image, VERMILION, part).mean() for part in rows)
    assert a < c < b
    assert (c - a) / (b - a) == pytest.approx(0.5, abs=0.01)
    assert (d - a) / (b - a) == pytest.approx(0.25, abs=0.01)
    dots = columns(image, BLUE, rows[3])
    assert dots.min() == pytest.approx(a, abs=5)
    assert dots.max() == pytest.approx(c, abs=5)


def test_a_seed_has_the_same_height_in_every_row():
    """Three seeds at three places: the first one's dot is the highest in both rows, wherever it lies."""
    for values in ([0.9, 0.95, 0.99], [0.99, 0.95, 0.9]):
        image = study_plot.picture({"a": values})
        rgb = [int(BLUE[i : i + 2], 16) for i in (1, 3, 5)]
        rows, found = np.nonzero((np.asarray(image)[50:] == rgb).all(axis=-1))
        left, right = (rows[side].mean() for side in (found < np.median(found), found > np.median(found)))
        assert (left < right) == (values[0] < values[2])


def test_equal_accuracies_stay_apart():
    one, three = (columns_count(study_plot.picture({"a": [0.95] * n})) for n in (1, 3))
    assert three > 2 * one


def columns_count(image):
    rgb = [int(BLUE[i : i + 2], 16) for i in (1, 3, 5)]
    return int((np.asarray(image)[44:] == rgb).all(axis=-1).sum())


@pytest.mark.parametrize("values", [[0.0], [1.0], [1.0, 1.0, 1.0], [0.0, 1.0], [0.5 + i / 100 for i in range(31)]])
def test_any_accuracies_and_labels_fit(values):
    image = study_plot.picture({"a": values, "ein sehr langer Name " * 9: values, "": values}, "very long " * 50)
    assert (image.mode, image.width) == ("RGB", study_plot.WIDTH)
    edge = np.asarray(image)[:, [0, 1, -2, -1]]
    assert (edge == 255).all()  # nothing is cut off
    assert len(columns(image, BLUE))


def test_nothing_to_show_is_refused():
    for nothing in ({}, {"a": []}, {"a": [0.5], "b": []}):
        with pytest.raises(ValueError, match="at least one arm"):
            study_plot.picture(nothing)


def test_it_is_written_whole(tmp_path, monkeypatch):
    path = tmp_path / "study.png"
    study_plot.draw({"a": [0.5, 0.6]}, path, "a study")
    with Image.open(path) as image:
        assert (image.format, image.size[0]) == ("PNG", study_plot.WIDTH)
    before = path.read_bytes()

    def fail(self, file, **options):
        file.write(b"half a picture")
        raise OSError("disk full")

    monkeypatch.setattr(Image.Image, "save", fail)
    with pytest.raises(OSError, match="disk full"):
        study_plot.draw({"a": [0.7]}, path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["study.png"]
