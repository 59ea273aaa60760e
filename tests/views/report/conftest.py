"""A small model with attention that is far from even, and the parts of its page."""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from html.parser import HTMLParser
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from numpy_vit import tree
from numpy_vit.models import vit
from numpy_vit.tree import Array, Params
from numpy_vit.views.report import explorer
from numpy_vit.views.report.answers import Answers, Sample
from numpy_vit.views.report.page import Contents

VOID = {"meta", "link", "img", "input"}
NAMES = ("cat", "dog", "owl")


@dataclass(frozen=True)
class Small:
    """A model and images for it, (n, C, Y, X), with their pictures (n, Y, X, 3)."""

    model: ModuleType
    config: vit.Config
    params: Params
    images: Array
    pictures: Array

    def offered(self) -> list[explorer.Offered]:
        pairs = zip(self.images, self.pictures, strict=True)
        return [explorer.Offered(f"image {i}", *pair, truth="owl") for i, pair in enumerate(pairs)]


def make(model: ModuleType = vit, count: int = 3, seed: int = 0, **fields: Any) -> Small:
    """Return a model of 2 blocks with 2 heads on 8 x 12 images in 4 x 3 patches, unless told otherwise."""
    usual = {"image_size": (8, 12), "patch_size": (2, 4), "embed_dim": 16, "depth": 2, "num_heads": 2}
    config = model.Config(**{**usual, "num_classes": 3, **fields})
    rng = np.random.default_rng(seed)
    params = tree.map(
        lambda leaf: (leaf + rng.normal(0, 0.4, leaf.shape)).astype(np.float32), model.init(config, rng)
    )  # fmt: skip
    images = rng.normal(size=(count, config.in_chans, *config.image)).astype(np.float32)
    pictures = rng.integers(0, 256, (count, *config.image, 3), np.uint8)
    return Small(model, config, params, images, pictures)


@pytest.fixture
def small() -> Callable[..., Small]:
    return make


@pytest.fixture
def contents() -> Callable[..., Contents]:
    """Return what makes a whole page of a small model; fields of Contents may be replaced."""

    def make_contents(names: tuple[str, ...] = NAMES, small: Small | None = None, **fields: Any) -> Contents:
        made = small or make(reg_tokens=1, num_classes=len(names))
        rng = np.random.default_rng(1)
        answers = Answers("pets test", rng.normal(size=(40, len(names))), rng.integers(0, len(names), 40), names)
        samples = [Sample(i, made.pictures[0]) for i in (*answers.hits(3), *answers.mistakes(3))]
        explored = explorer.explore(made.model, made.params, made.config, made.offered(), names)
        rows = [{"epoch": i, "train_loss": 2 / i, "test_loss": 3 / i, "test_accuracy": 1 - 0.5 / i} for i in (1, 2, 3)]
        usual = {
            "title": "pets", "config": made.config, "params": made.params, "facts": [("model", "ViT")], "rows": rows,
            "answers": answers, "right": samples[:3], "wrong": samples[3:], "explored": explored, "offered": 3,
        }  # fmt: skip
        return Contents(**{**usual, **fields})

    return make_contents


@dataclass
class Element:
    name: str
    attributes: dict[str, str | None]
    parent: Element | None = None
    children: list[Element] = field(default_factory=list)
    words: str = ""

    def text(self) -> str:
        return self.words + "".join(child.text() for child in self.children)


class Reader(HTMLParser):
    """Reads a page into a tree, and refuses what browsers would have to repair."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.root = self.here = Element("", {})
        self.all: list[Element] = []
        self.feed(page)
        self.close()
        assert self.here is self.root, f"<{self.here.name}> is never closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), f"<{tag}> has an attribute twice"
        made = Element(tag, dict(attrs), self.here)
        self.here.children.append(made)
        self.all.append(made)
        if tag not in VOID:
            self.here = made

    def handle_endtag(self, tag: str) -> None:
        assert tag == self.here.name, f"</{tag}> closes <{self.here.name}>"
        assert self.here.parent is not None
        self.here = self.here.parent

    def handle_data(self, data: str) -> None:
        self.here.words += data

    def named(self, tag: str) -> list[Element]:
        return [element for element in self.all if element.name == tag]

    def by_id(self, identity: str) -> Element:
        (found,) = [element for element in self.all if element.attributes.get("id") == identity]
        return found


@pytest.fixture
def read() -> Callable[[bytes | str], Reader]:
    return lambda page: Reader(page.decode() if isinstance(page, bytes) else page)


@pytest.fixture
def unpacked() -> Callable[[str, int, int, int], Array]:
    """Return what undoes `packed.written` without the package's help: (rows, T+N) of `rows` rows with T and N."""

    def undo(text: str, rows: int, T: int, N: int, signed: bool = False) -> Array:
        raw = zlib.decompress(base64.b64decode(text))
        floats = np.frombuffer(raw[: 4 * rows * (1 + T)], "<f4")
        codes = np.frombuffer(raw[4 * rows * (1 + T) :], np.uint8).reshape(rows, N).astype(np.float64)
        root = (codes - 128) / 127 if signed else codes / 255
        patches = np.sign(root) * root**2 * floats[:rows, np.newaxis]
        return np.concatenate([floats[rows:].reshape(rows, T), patches], axis=1)

    return undo


@pytest.fixture
def script_data() -> Callable[[bytes], Any]:
    """Return what reads the explorer's data out of a page."""

    def find(page: bytes) -> Any:
        found = re.search(r'<script type="application/json" id="explorer-data">(.*?)</script>', page.decode())
        return json.loads(found[1]) if found else None

    return find
