"""The picture of a run shows the run, whatever is missing from it, and is written whole."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from numpy_vit.views import curves
from numpy_vit.views.plot import BLUE, GREEN, VERMILION

KEYS = ["epoch", "train_loss", "train_accuracy", "test_loss", "test_accuracy", "learning_rate", "seconds"]


def run(n, test=True):
    rows = []
    for epoch in range(1, n + 1):
        row = {"epoch": epoch, "learning_rate": 1e-3 / epoch}
        row |= {"train_loss": 2 / epoch, "train_accuracy": 1 - 0.9 / epoch}
        if test:
            row |= {"test_loss": 2.2 / epoch, "test_accuracy": 0.9 - 0.8 / epoch}
        rows.append({**row, "images_per_second": 900.0, "seconds": 2.0})
    return rows


def heights(image, colour, panel):
    """The pixel rows in which a panel's plot, without its heading, has the colour."""
    rgb = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    third = curves.WIDTH // 3
    part = np.asarray(image)[70:, panel * third : (panel + 1) * third]
    return np.nonzero((part == rgb).all(axis=-1).any(axis=1))[0] + 70


def test_size_and_format(tmp_path):
    curves.draw(run(5), tmp_path / "curves.png", "a run")
    with Image.open(tmp_path / "curves.png") as image:
        assert image.size == (curves.WIDTH, curves.HEIGHT) == (1200, 420)
        assert (image.format, image.mode) == ("PNG", "RGB")
        assert image.getpixel((0, 0)) == (255, 255, 255)
    assert [path.name for path in tmp_path.iterdir()] == ["curves.png"]


def test_each_panel_has_its_lines():
    image = curves.picture(run(12))
    for panel, colours in enumerate([{BLUE, VERMILION}, {BLUE, VERMILION}, {GREEN}]):
        assert {c for c in (BLUE, VERMILION, GREEN) if len(heights(image, c, panel))} == colours


@pytest.mark.parametrize(("key", "panel", "factor"), [("train_loss", 0, 1), ("train_accuracy", 1, 0.25)])
def test_heights_are_in_proportion(key, panel, factor):
    values = [4.0, 1.0, 2.0, 2.0, 2.0, 2.0]  # the axis ends at 0 or 1, and at 4
    rows = [{"epoch": i, key: factor * value} for i, value in enumerate(values, 1)]
    image = curves.picture(rows)
    found = heights(image, BLUE, panel)
    highest, lowest = found.min(), found.max()
    part = np.asarray(image)[70:, panel * 400 : (panel + 1) * 400]
    counts = (part == [0, 0x72, 0xB2]).all(axis=-1).sum(axis=1)
    plateau = 70 + counts.argmax()  # three of five stretches are level, at 2
    assert (plateau - highest) / (lowest - highest) == pytest.approx(2 / 3, abs=0.02)
    assert highest < 110 and lowest > 280  # the axis is not much larger than the data


def test_a_falling_loss_falls_and_a_rising_accuracy_rises():
    image = np.asarray(curves.picture(run(20, test=False)))
    blue = (image[70:] == [0, 0x72, 0xB2]).all(axis=-1)
    for panel, sign in ((0, 1), (1, -1)):
        rows, columns = np.nonzero(blue[:, panel * 400 : (panel + 1) * 400])
        assert sign * (rows[columns.argmax()] - rows[columns.argmin()]) > 100


def test_without_a_test_part_nothing_is_drawn_for_it():
    image = curves.picture(run(10, test=False))
    rgb = [int(VERMILION[i : i + 2], 16) for i in (1, 3, 5)]
    assert not (np.asarray(image) == rgb).all(axis=-1).any()


def test_a_test_every_second_epoch_is_a_line_all_the_same():
    every = run(8)
    second = [row if row["epoch"] % 2 == 0 else {k: v for k, v in row.items() if "test" not in k} for row in every]
    rgb = [int(VERMILION[i : i + 2], 16) for i in (1, 3, 5)]

    def columns(rows):
        return np.nonzero((np.asarray(curves.picture(rows))[70:, :400] == rgb).all(axis=-1).any(axis=0))[0]

    found = columns(second)
    assert (np.diff(found) == 1).all()  # without a gap from the first test to the last
    assert len(columns(every)) > len(found) > 0.7 * len(columns(every))


def pretrained(n):
    """What pre-training writes: a loss of the training part, and of the test part now and then; no accuracy."""
    rows = [{"epoch": i, "train_loss": 1 / i, "learning_rate": 1e-3 / i, "seconds": 2.0} for i in range(1, n + 1)]
    return [row | {"test_loss": 1.1 / row["epoch"]} if row["epoch"] % 4 == 0 else row for row in rows]


@pytest.mark.parametrize(
    ("rows", "titles"),
    [
        (run(8), ["loss (cross-entropy, nats)", "accuracy (%)", "learning rate"]),
        (run(8, test=False), ["loss (cross-entropy, nats)", "accuracy (%)", "learning rate"]),
        (pretrained(8), ["loss (mean squared error)", "learning rate"]),
    ],
)
def test_every_panel_has_its_unit_and_something_to_show(rows, titles, monkeypatch):
    written = []

    class Sheet(curves.Canvas):
        def text(self, x, y, text, size=12, *arguments, **options):
            written.append((x, text, size))
            super().text(x, y, text, size, *arguments, **options)

    monkeypatch.setattr(curves, "Canvas", Sheet)
    curves.picture(rows)
    assert [text for _, text, size in written if size == 14] == titles
    assert "nothing to show" not in [text for _, text, _ in written]
    lefts = [x for x, _, size in written if size == 14]
    assert np.ptp(np.diff([*lefts, curves.WIDTH])) < 80, "the panels share the width"


def test_pre_training_shows_its_losses_on_the_left_and_its_rate_on_the_right():
    image = np.asarray(curves.picture(pretrained(12)))[70:]
    for colour, side in ((BLUE, 0), (VERMILION, 0), (GREEN, 1)):
        columns = np.nonzero((image == [int(colour[i : i + 2], 16) for i in (1, 3, 5)]).all(axis=-1).any(axis=0))[0]
        assert set(columns // (curves.WIDTH // 2)) == {side}
        assert np.ptp(columns) > 300


def test_a_thousand_rows_and_one_row():
    for n in (1000, 1):
        image = curves.picture(run(n))
        assert len(heights(image, BLUE, 0)) and len(heights(image, GREEN, 2))


def test_an_overfit_run_may_count_steps():
    rows = [{"step": i, "train_loss": 1 / i} for i in range(1, 50)]
    assert len(heights(curves.picture(rows), BLUE, 0)) > 200


ODD = st.one_of(
    st.none(),
    st.floats(),
    st.integers(-(10**400), 10**400),
    st.text(max_size=3),
    st.booleans(),
    st.just(np.float32(0.5)),
)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from(KEYS), ODD), max_size=6), st.text(max_size=40))
def test_odd_rows_never_stop_the_picture(rows, title):
    assert curves.picture(rows, title).size == (curves.WIDTH, curves.HEIGHT)


@pytest.mark.parametrize("value", [0.0, 1.0, 0.5, 1e-30, 1e30, math.nan, math.inf, None, -1.0])
def test_constant_series(value):
    rows = [dict.fromkeys(KEYS, value) | {"epoch": epoch} for epoch in (1, 2, 3)]
    image = curves.picture(rows)
    drawn = value is not None and math.isfinite(value)
    assert bool(len(heights(image, BLUE, 0))) == drawn


def test_a_failure_leaves_the_old_picture(tmp_path, monkeypatch):
    path = tmp_path / "curves.png"
    curves.draw(run(2), path)
    before = path.read_bytes()

    def fail(self, file, **options):
        file.write(b"half a picture")
        raise OSError("disk full")

    monkeypatch.setattr(Image.Image, "save", fail)
    with pytest.raises(OSError, match="disk full"):
        curves.draw(run(3), path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["curves.png"]
