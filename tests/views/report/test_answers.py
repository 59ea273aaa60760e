"""Which samples are shown, and what is said of them."""

from __future__ import annotations

import numpy as np
import pytest

from numpy_vit.data import load
from numpy_vit.views.report.answers import Answers, Sample, pictures_of, samples

# Six images of three classes; the sureness of the answers to images 1, 3 and 5, which are wrong, grows.
LOGITS = np.array([[9, 0, 0], [1, 0, 0], [0, 9, 0], [0, 2, 0], [9, 0, 0], [0, 0, 3]], np.float32)
LABELS = np.array([0, 1, 1, 2, 0, 0])
ANSWERS = Answers("pets test", LOGITS, LABELS, ("cat", "dog", "owl"))


def test_counts_and_accuracy_by_hand():
    assert ANSWERS.counts.tolist() == [[2, 0, 1], [1, 1, 0], [0, 1, 0]]
    assert ANSWERS.accuracy == pytest.approx(0.5)
    assert ANSWERS.mistaken == 3


def test_the_surest_mistakes_come_first():
    assert ANSWERS.mistakes(2) == [5, 3]
    assert ANSWERS.mistakes(9) == [5, 3, 1]


def test_hits_take_the_classes_in_turn():
    assert ANSWERS.hits(9) == [0, 2, 4]
    assert ANSWERS.hits(2) == [0, 2]


def test_samples_say_the_answer_and_the_truth(read):
    picture = np.zeros((8, 8, 3), np.uint8)
    page = read(samples(ANSWERS, [Sample(0, picture)], [Sample(5, picture)]))
    wrong, right = (caption.text() for caption in page.named("figcaption"))
    assert wrong.startswith("✗ owl (90.9 %)is cat")
    assert right.startswith("✓ cat (99.9 %)dog")
    assert [one.attributes["alt"] for one in page.named("img")] == ["test image 5: cat", "test image 0: cat"]


def test_no_mistake_is_said(read):
    faultless = Answers("pets test", LOGITS, ANSWERS.predicted, ANSWERS.class_names)
    page = read(samples(faultless, [Sample(0, np.zeros((300, 200, 3), np.uint8))], []))
    assert "no mistake" in page.root.text()
    assert len(page.named("img")[0].attributes["src"]) < 2000, "large pictures are shrunk"


def test_mistakes_that_are_not_shown_are_not_denied(read):
    text = read(samples(ANSWERS, [Sample(0, np.zeros((8, 8, 3), np.uint8))], [])).root.text()
    assert "Mistakes: 3 of 6 images" in text
    assert "no mistake" not in text
    assert "Mistakes: 3 of 6 images" in read(samples(ANSWERS, [], [])).root.text()


def test_pictures_are_the_images_in_colours():
    digits = load("digits").test
    found = pictures_of(digits, [7, 3])
    np.testing.assert_array_equal(found[3], digits.images[3][0][..., np.newaxis].repeat(3, axis=-1))
    assert list(found) == [7, 3]
    assert pictures_of(digits, []) == {}
