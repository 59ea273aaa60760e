"""A small model with attention that is far from even, the parts of its page, and that page in a browser."""

from __future__ import annotations

import base64
import json
import re
import shutil
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from numpy_vit import tree
from numpy_vit.models import vit
from numpy_vit.tree import Array, Params
from numpy_vit.views.report import explorer
from numpy_vit.views.report.answers import Answers, Sample
from numpy_vit.views.report.page import Contents, page

VOID = {"meta", "link", "img", "input"}
NAMES = ("cat", "dog", "owl")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")


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


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A headless Chromium."""
    webdriver = pytest.importorskip("selenium.webdriver")
    service = pytest.importorskip("selenium.webdriver.chrome.service").Service
    chromium, chromedriver = shutil.which("chromium"), shutil.which("chromedriver")
    if not (chromium and chromedriver):
        pytest.skip("chromium and chromedriver are not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    started = webdriver.Chrome(options=options, service=service(chromedriver))
    started.set_page_load_timeout(60)
    yield started
    started.quit()


class Explorer:
    """The page as a visitor meets it."""

    def __init__(self, driver: Any, path: Path, config: vit.Config, explored: list[explorer.Explored]) -> None:
        self.driver, self.path, self.explored = driver, path, explored
        self.first, self.grid = config.num_prefix_tokens, config.grid
        self.show()

    def show(self, width: int = 1200, height: int = 900, dark: bool = False) -> None:
        """Open the page anew in a window of a size and a colour scheme."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
        self.driver.get(self.path.as_uri())
        self.says("block 1, mean of heads, class token → ")

    def element(self, identity: str):
        return self.driver.find_element("id", identity)

    def wait(self, condition: Callable[[object], bool]) -> None:
        """Wait until a condition on the driver holds."""
        from selenium.webdriver.support.wait import WebDriverWait

        WebDriverWait(self.driver, 10, 0.05).until(condition)

    def says(self, *words: str) -> str:
        """Wait until the status line has the words, and return it."""

        def found(_: object) -> bool:
            return all(word in self.element("status").text for word in words)

        try:
            self.wait(found)
        except Exception as error:
            raise AssertionError(f"{self.element('status').text!r} lacks one of {words}") from error
        return self.element("status").text

    def click(self, row: int, column: int, kind: str = "mouse") -> None:
        """Press a patch with a pointer, of the kind "mouse" or "touch"."""
        from selenium.webdriver.common.actions.action_builder import ActionBuilder
        from selenium.webdriver.common.actions.pointer_input import PointerInput

        canvas = self.element("map")
        x, y = ((i + 0.5) / n - 0.5 for i, n in zip((column, row), self.grid[::-1], strict=True))
        self.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", canvas)
        actions = ActionBuilder(self.driver, mouse=PointerInput(kind, kind))
        pointer = actions.pointer_action
        pointer.move_to(canvas, round(x * canvas.size["width"]), round(y * canvas.size["height"]))
        pointer.pointer_down().pointer_up()
        actions.perform()

    def paint_only(self) -> None:
        """Make the overlay opaque by the keyboard, so that pixels are the map's alone."""
        from selenium.webdriver.common.keys import Keys

        self.element("opacity").send_keys(Keys.END)
        self.says("block")

    def colours(self) -> np.ndarray:
        """The colours (rows, columns, 3) in the middle of each patch."""
        script = """
        const canvas = document.getElementById("map"), context = canvas.getContext("2d"), found = [];
        const [rows, columns] = arguments;
        for (let i = 0; i < rows; i++) for (let j = 0; j < columns; j++)
          found.push(...context.getImageData((j + 0.5) * canvas.width / columns, (i + 0.5) * canvas.height / rows, 1, 1)
            .data.slice(0, 3));
        return found;"""
        return np.array(self.driver.execute_script(script, *self.grid)).reshape(*self.grid, 3)

    def shows(self, row: np.ndarray, paint) -> None:
        """Wait until the canvas has the colours of a map (T+N,) under the scale that the page names."""
        patches = row[self.first :].reshape(self.grid)
        expected = paint(patches / np.abs(patches).max()).astype(int)

        def same(_: object) -> bool:
            return bool((np.abs(self.colours() - expected) <= 3).all())  # a code is a 127th or 255th of the colours

        self.wait(same)
        most = float(self.element("most").get_attribute("value"))
        np.testing.assert_allclose(most, np.abs(patches).max(), rtol=1e-5)


@pytest.fixture
def explored_page(driver, tmp_path, contents, small) -> Iterator[Explorer]:
    made = small(reg_tokens=1)
    full = contents(("cat", "</script><b>dog", "owl"), small=made)
    (tmp_path / "report.html").write_bytes(page(full))
    yield Explorer(driver, tmp_path / "report.html", made.config, [one for one, _ in full.explored])
    said = driver.get_log("browser")
    assert not [entry for entry in said if entry["source"] != "rendering"], "rendering: that this test reads pixels"
