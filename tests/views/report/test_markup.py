"""Text stays text, whatever it says."""

from __future__ import annotations

import base64
import io
import json

import numpy as np
import pytest
from PIL import Image

from numpy_vit.views.report import markup

HOSTILE = "</script><b>&\"'<!--\u2028\x00\x1b"


def test_text_cannot_become_markup(read):
    page = read(markup.tag("p", markup.escape(HOSTILE), title=HOSTILE))
    (element,) = page.all
    shown = HOSTILE.replace("\x00", "\ufffd").replace("\x1b", "\ufffd")
    assert element.words == element.attributes["title"] == shown


def test_data_cannot_end_its_element(read):
    page = read(markup.json_script("data", {HOSTILE: [HOSTILE, "\ud800"]}))
    (element,) = page.all
    assert json.loads(element.words) == {HOSTILE: [HOSTILE, "\ud800"]}
    assert "<" not in element.words


def test_attributes():
    assert markup.opening("img", class_="a", aria_label="b", hidden=True, alt=None) == (
        '<img class="a" aria-label="b" hidden>'
    )


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.0, "0 %"), (1.0, "100 %"), (1e-9, "0.1 %"), (0.99999, "99.9 %"), (0.8134, "81.3 %"), (0.5, "50.0 %")],
)
def test_only_none_and_all_are_0_and_100(share, text):
    assert markup.percent(share) == text


@pytest.mark.parametrize(("side", "kind"), [(8, "png"), (96, "jpeg")])
def test_pictures_come_back(side, kind):
    smooth = np.linspace(0, 255, side).astype(np.uint8)[:, np.newaxis, np.newaxis].repeat(side, 1).repeat(3, 2)
    url = markup.picture_url(smooth)
    head, _, text = url.partition(",")
    assert head == f"data:image/{kind};base64"
    again = np.asarray(Image.open(io.BytesIO(base64.b64decode(text)))).astype(int)
    assert np.abs(again - smooth).max() <= (0 if kind == "png" else 6)


def test_a_table_reads_back(read):
    page = read(markup.table("what", ["class", "n"], [["<a>", "1"], ["b", "22"]], numbers=[1]))
    assert [[cell.words for cell in row.children] for row in page.named("tr")] == [
        ["class", "n"], ["<a>", "1"], ["b", "22"],
    ]  # fmt: skip
    assert [cell.attributes.get("scope") for row in page.named("tr") for cell in row.children] == [
        "col", "col", "row", None, "row", None,
    ]  # fmt: skip
