"""Data sets by name."""

from pathlib import Path

import numpy as np
import pytest

from numpy_vit.data import digits, mnist, sources
from numpy_vit.errors import DataError


def test_digits():
    split = sources.load("digits")
    np.testing.assert_array_equal(split.train.images, digits.load().train.images)


def test_the_place_reaches_the_loader(monkeypatch):
    table = {
        "near": sources.Source(lambda place: place, "", "FOLDER"),
        "far": sources.Source(lambda place: place, "", "FOLDER", "/default"),
    }
    monkeypatch.setattr(sources, "SOURCES", table)
    assert sources.load("near:a/b:c") == Path("a/b:c")
    assert sources.load("far:x") == Path("x")
    assert sources.load("far") == Path("/default")
    assert sources.load("near:~/x") == Path.home() / "x"
    assert sources.load("near:~no-such-user/x") == Path("~no-such-user/x")


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("cifar", "no data set is called 'cifar'; choose one of digits, mnist:FOLDER, fashion-mnist[:FOLDER]"),
        ("", "no data set is called ''"),
        ("Digits", "no data set is called 'Digits'"),
        ("mnist", "'mnist' lacks its folder; write mnist:FOLDER"),
        ("mnist:", "'mnist:' lacks its folder"),
        ("fashion-mnist:", "lacks its folder"),
        ("digits:here", "digits takes nothing after a colon"),
        ("digits:", "digits takes nothing after a colon"),
        ("mnist:/no/such/folder", "no folder /no/such/folder"),
        ("fashion-mnist:/no/such/folder", mnist.DEBIAN_COMMAND),
    ],
)
def test_wrong_specifications(spec, words):
    with pytest.raises(DataError) as caught:
        sources.load(spec)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(not Path(mnist.DEBIAN_FASHION_MNIST).is_dir(), reason=f"no Fashion-MNIST: {mnist.DEBIAN_COMMAND}")
def test_fashion_mnist_from_debian():
    assert len(sources.load("fashion-mnist").test) == 10_000
