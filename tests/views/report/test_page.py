"""The page is whole, well formed, closed to the network, and the same each time."""

from __future__ import annotations

import base64
import hashlib
import re

import pytest

from numpy_vit.models import deit
from numpy_vit.views.report import explorer
from numpy_vit.views.report.page import page

HOSTILE = ("</script><b>bold", '"><img src=x onerror=alert(1)>', "$style ${data} {{title}} <!--")


def test_it_is_well_formed(contents, read):
    made = read(page(contents()))
    ids = [one.attributes["id"] for one in made.all if "id" in one.attributes]
    assert len(ids) == len(set(ids))
    pointers = [
        target
        for one in made.all
        for key in ("for", "aria-labelledby", "aria-describedby")
        for target in (one.attributes.get(key) or "").split()
    ]
    links = [one.attributes["href"] for one in made.named("a")]
    assert len(pointers) > 10
    assert set(pointers) | {link[1:] for link in links} <= set(ids)
    assert [one.name for one in made.root.children] == ["html"]
    assert len(made.named("h1")) == 1
    assert all(one.attributes.get("alt") for one in made.named("img"))


def test_every_control_has_a_label(contents, read):
    made = read(page(contents()))
    labelled = {one.attributes["for"] for one in made.named("label") if "for" in one.attributes}
    for control in (*made.named("select"), *made.named("input")):
        inside = control.parent is not None and control.parent.name == "label"
        assert inside or control.attributes["id"] in labelled, control.attributes


@pytest.mark.parametrize("title", ["pets", HOSTILE[0]])
def test_names_stay_text(contents, read, script_data, title):
    whole = page(contents(HOSTILE, title=title))
    made = read(whole)
    assert made.named("title")[0].words == made.named("h1")[0].words == title
    assert len(made.named("script")) == 2
    assert not [one for one in made.named("b") if one.words == "bold"]
    assert all((one.attributes["src"] or "").startswith("data:image/") for one in made.named("img"))
    assert HOSTILE[0] in made.by_id("confusion").text()
    assert {entry["top"][0][0] for entry in script_data(whole)["images"]} <= set(HOSTILE)


def test_nothing_runs_or_loads_but_what_is_ours(contents, read):
    whole = page(contents())
    made = read(whole)
    policy = next(one.attributes["content"] for one in made.named("meta") if "http-equiv" in one.attributes)
    assert policy is not None
    assert policy.startswith("default-src 'none'; img-src data:;")
    (style,), script = made.named("style"), made.named("script")[-1]
    for kind, element in (("style", style), ("script", script)):
        checksum = base64.b64encode(hashlib.sha256(element.words.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{checksum}'" in policy
    assert not re.search(rb"https?:|//[a-z]+\.", whole)
    assert not [key for one in made.all for key in one.attributes if key.startswith("on") or key == "style"]


def test_the_same_contents_are_the_same_bytes(contents):
    assert page(contents()) == page(contents())


def test_the_explorer_data_are_the_weights(contents, script_data, unpacked):
    made = contents()
    data = script_data(page(made))
    T, N, rows = 2, 12, 2 * 2 * 14
    for entry, (one, _) in zip(data["images"], made.explored, strict=True):
        weights = unpacked(entry["weights"], rows, T, N)
        assert abs(weights.sum(axis=1) - 1).max() < 0.03
        assert abs(weights - one.weights.values.reshape(rows, T + N)).max() < 1e-6
        gradients = unpacked(entry["gradients"], rows, T, N, True)
        assert abs(gradients - one.gradients.values.reshape(rows, T + N)).max() < 1e-5


def test_what_is_missing_is_said(contents, read):
    bare = contents(rows=(), answers=None, explored=(), missing={"curves": "no run", "explorer": "no <image>"})
    made = read(page(bare))
    assert "no run" in made.by_id("curves").text()
    assert "no <image>" in made.by_id("explorer").text()
    assert not made.named("canvas")
    assert len(made.named("script")) == 1


def test_the_page_says_what_did_not_fit(contents, small, read, monkeypatch):
    assert "first 3 of 9 images" in read(page(contents(offered=9))).by_id("explorer").text()
    assert "note" not in {one.attributes.get("class") for one in read(page(contents())).by_id("explorer").children}
    distilled = contents(small=small(deit))
    assert "the mean of theirs" in read(page(distilled)).by_id("explorer").text()
    made = contents()
    monkeypatch.setattr(explorer, "heads_shown", lambda config: 1)
    assert "2 heads are averaged" in read(page(made)).by_id("explorer").text()
