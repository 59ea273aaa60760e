"""Data sets by name."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from numpy_vit.data import digits, mnist, sources
from numpy_vit.errors import DataError


def test_digits():
    split = sources.load("digits")
    np.testing.assert_array_equal(split.train.images, digits.load().train.images)


def test_the_place_reaches_the_loader(monkeypatch):
    table = {
        "near": sources.Source(sources.in_one_size(lambda place: place), "", "FOLDER"),
        "far": sources.Source(sources.in_one_size(lambda place: place), "", "FOLDER", "/default"),
    }
    monkeypatch.setattr(sources, "SOURCES", table)
    monkeypatch.setattr(sources, "resized", lambda data, size: data)
    assert sources.load("near:a/b:c") == Path("a/b:c")
    assert sources.load("far:x") == Path("x")
    assert sources.load("far") == Path("/default")
    assert sources.load("near:~/x") == Path.home() / "x"
    assert sources.load("near:~no-such-user/x") == Path("~no-such-user/x")


def test_any_source_comes_in_another_size(tmp_path):
    assert sources.load("digits", 12).train.shape == (1, 12, 12)
    assert sources.load("digits", (8, 10)).test.shape == (1, 8, 10)
    assert sources.load("shapes:10", 16).train.shape == (3, 16, 16)
    (tmp_path / "a").mkdir()
    for number in range(5):
        Image.new("RGB", (9, 20 + number)).save(tmp_path / "a" / f"{number}.png")
    done = []
    found = sources.load(f"folder:{tmp_path}", 8, lambda *of: done.append(of))
    assert found.test.shape == (3, 8, 8)
    assert done[-1] == (5, 5)
    with pytest.raises(ValueError, match="size must be at least 1"):
        sources.load("digits", 0)


def test_shapes_with_a_number():
    split = sources.load("shapes:50")
    assert (len(split.train), len(split.test)) == (50, 10)
    assert split.train.shape == (3, 32, 32)
    assert len(split.train.class_names) == 8


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("cifar", "no data set is called 'cifar'; choose one of digits, mnist:FOLDER, fashion-mnist[:FOLDER]"),
        ("folder", "'folder' lacks its path; write folder:PATH"),
        ("folder:/no/such/folder", "no folder /no/such/folder"),
        ("shapes:x", "lacks a number of at least 5; write shapes:5000"),
        ("shapes:4", "lacks a number"),
        ("shapes:", "lacks its n; write shapes:N"),
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
