"""numpy-vit report: a run's page has the run's numbers, and a page that lacks something says how to get it."""

from __future__ import annotations

import html
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from unittest.mock import ANY

import numpy as np
import pytest
from PIL import Image

from numpy_vit import tree
from numpy_vit.checkpoints import own, safetensors
from numpy_vit.cli.main import main
from numpy_vit.data import load
from numpy_vit.models import vit, vit_config

Cli = Callable[..., subprocess.CompletedProcess[str]]
Report = Callable[..., tuple[int, str, str]]


def data_of(page: str) -> dict:
    """The explorer's data."""
    found = re.search(r'<script type="application/json" id="explorer-data">(.*?)</script>', page)
    assert found, "the page has no explorer"
    return json.loads(found[1])


def section(page: str, name: str) -> str:
    return page[page.index(f'<section id="{name}"') :].partition("</section>")[0]


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Report:
    """Return a function that runs the command in this process and returns its status and what it printed."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        return status(["report", *arguments]), *capsys.readouterr()

    return run


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model for pictures of 8 x 8 with a class token, without anything about its data."""
    config = vit.Config(8, 2, 1, 10, 16, 2, 2)
    rng = np.random.default_rng(0)
    params = tree.map(lambda leaf: leaf + rng.normal(0, 0.2, leaf.shape).astype(np.float32), vit.init(config, rng))
    own.save(tmp_path / "model.safetensors", config, params, {})
    for i, image in enumerate(load("digits").test.images[:3]):
        Image.fromarray(image[0]).save(tmp_path / f"{i}.png")
    return tmp_path / "model.safetensors"


def test_the_page_of_a_run(cli: Cli, tmp_path: Path, tiny: tuple[str, ...]) -> None:
    assert cli("train", "--epochs", "2", "--out", "a", *tiny).returncode == 0
    result = cli("report", "a", "--samples", "6")
    assert (result.returncode, result.stderr) == (0, "")
    path = tmp_path / "a" / "report.html"
    size = path.stat().st_size
    assert result.stdout == f"a/report.html: {size / 1e6:.2f} MB, 6 of 6 images in the explorer\n"
    page = path.read_text("utf-8")
    found = json.loads(cli("eval", "a", "--json").stdout)
    right = round(found["accuracy"] * found["images"])
    assert f"digits test: {right} of 359 images recognised" in section(page, "confusion")
    rows = [json.loads(line) for line in (tmp_path / "a" / "metrics.jsonl").read_text().splitlines()]
    assert f"{rows[-1]['test_loss']:.4g}" in section(page, "curves")
    data, test = data_of(page), load("digits").test
    for entry in data["images"]:
        number = int(entry["name"].removeprefix("test image "))
        assert entry["truth"] == str(test.labels[number])
    assert section(page, "samples").count("✗") == 3
    assert section(page, "samples").count("✓") == 3
    first = path.read_bytes()
    assert cli("report", "a", "--samples", "6", "--workers", "1").returncode == 0
    assert path.read_bytes() == first, "the same run gives the same bytes"


def test_a_run_whose_data_is_gone_still_has_its_curves(
    cli: Cli, report: Report, tmp_path: Path, tiny: tuple[str, ...]
) -> None:
    for part, count in (("train", 3), ("test", 2)):
        for name in ("dark", "light"):
            folder = tmp_path / "pictures" / part / name
            folder.mkdir(parents=True)
            for i in range(count):
                grey = np.random.default_rng(i).integers(0, 99, (8, 8), np.uint8) + (100 if name == "light" else 0)
                Image.fromarray(grey).save(folder / f"{i}.png")
    spec = ("--data", "folder:pictures", "--image-size", "8", "--patch-size", "2")
    assert cli("train", *spec, "--epochs", "1", "--batch-size", "2", "--out", "a", *tiny).returncode == 0
    assert report("a", "--out", "whole.html")[0] == 0
    assert data_of((tmp_path / "whole.html").read_text())["images"][0]["truth"] in ("dark", "light")

    Image.new("L", (8, 8)).save(tmp_path / "pictures" / "test" / "dark" / "new.png")
    _, _, said = report("a", "--out", "changed.html")
    assert "fingerprint differs" in said
    assert "fingerprint differs" in section((tmp_path / "changed.html").read_text(), "confusion")

    (tmp_path / "pictures").rename(tmp_path / "elsewhere")
    left, _, said = report("a", "--out", "gone.html")
    assert left == 0
    assert len(said.splitlines()) == 1
    assert "pictures" in said
    page = (tmp_path / "gone.html").read_text()
    assert "<svg" in section(page, "curves")
    for name in ("explorer", "confusion", "samples"):
        assert "--data SPEC" in section(page, name)
    left, _, said = report("a", "--out", "named.html", "--data", "folder:elsewhere")
    assert (left, said) == (0, "")


def test_the_page_of_a_file(cli: Cli, report: Report, model: Path) -> None:
    left, _, said = report("model.safetensors", "--images", "1.png", "0.png", "--preprocessing", "timm")
    assert (left, said) == (0, "")
    page = (model.parent / "model.report.html").read_text("utf-8")
    data = data_of(page)
    assert [entry["name"] for entry in data["images"]] == ["1.png", "0.png"]
    assert [entry["truth"] for entry in data["images"]] == [None, None]
    said = json.loads(
        cli("predict", "1.png", "--checkpoint", "model.safetensors", "--preprocessing", "timm", "--json").stdout
    )
    top = said["images"][0]["top"][0]
    assert data["images"][0]["top"][0] == [top["name"], f"{100 * top['probability']:.1f} %"]
    assert "numpy-vit report RUN" in section(page, "curves")
    assert "--data SPEC" in section(page, "confusion")
    assert "1 × 2 × 17 × 17" in section(page, "shapes")


def test_a_file_with_data_is_tested_on_them(report: Report, model: Path) -> None:
    left, _, said = report("model.safetensors", "--data", "digits", "--preprocessing", "timm", "--samples", "2")
    assert (left, said) == (0, "")
    page = (model.parent / "model.report.html").read_text("utf-8")
    assert "of 359 images recognised" in section(page, "confusion")
    assert len(data_of(page)["images"]) == 2

    (model.parent / "names.txt").write_text("\n".join("abcdefghij"))
    arguments = ("--images", "0.png", "--preprocessing", "timm", "--labels", "names.txt", "--out", "named.html")
    assert report("model.safetensors", *arguments)[0] == 0
    top = data_of((model.parent / "named.html").read_text())["images"][0]["top"]
    assert {name for name, _ in top} <= set("abcdefghij")


def test_a_file_alone_says_what_it_lacks(report: Report, model: Path) -> None:
    safetensors.write(model, safetensors.read(model)[0], {})  # as another library would write it
    left, printed, _ = report("model.safetensors", "--heads", "2")
    assert left == 0
    page = (model.parent / "model.report.html").read_text("utf-8")
    assert "--images" in section(page, "explorer")
    assert "<canvas" not in page
    assert printed.endswith("0 of 0 images in the explorer\n")


def test_pre_training_has_weights_and_no_gradients(
    cli: Cli, report: Report, tmp_path: Path, tiny: tuple[str, ...]
) -> None:
    fields = ("--patch-size", "2", "--embed-dim", "16", "--depth", "1", "--num-heads", "2")
    assert cli("pretrain", "--data", "digits", "--epochs", "1", "--out", "a", *fields).returncode == 0
    left, _, said = report("a", "--samples", "3")
    assert (left, said) == (0, "")
    page = (tmp_path / "a" / "report.html").read_text("utf-8")
    assert [entry["gradients"] for entry in data_of(page)["images"]] == [None] * 3
    assert {entry["truth"] for entry in data_of(page)["images"]} == {"0", "1", "2"}
    assert "numpy-vit probe" in section(page, "confusion")
    assert "train loss" in section(page, "curves")
    assert "mean squared error" in section(page, "curves")
    (tmp_path / "names.txt").write_text("one")
    left, _, said = report("a", "--labels", "names.txt")
    assert (left, len(said.splitlines())) == (2, 1)
    assert "--labels" in said


@pytest.mark.parametrize("count", [0, 1])
def test_mistakes_are_counted_where_none_is_shown(report: Report, model: Path, count: int) -> None:
    arguments = ("--data", "digits", "--preprocessing", "timm", "--samples", str(count))
    assert report("model.safetensors", *arguments)[0] == 0
    page = (model.parent / "model.report.html").read_text("utf-8")
    found = re.search(r"(\d+) of 359 images recognised", section(page, "confusion"))
    assert found
    assert int(found[1]) < 359
    assert f"Mistakes: {359 - int(found[1])} of 359 images" in section(page, "samples")
    assert "no mistake" not in page
    assert section(page, "samples").count("<figure") == count
    assert ("--samples" in section(page, "explorer")) == (count == 0)


def test_the_classes_have_one_name_in_the_whole_page(report: Report, model: Path) -> None:
    names = [f"<{letter}>" for letter in "abcdefghij"]
    (model.parent / "names.txt").write_text("\n".join(names))
    arguments = ("--data", "digits", "--preprocessing", "timm", "--labels", "names.txt", "--samples", "4")
    assert report("model.safetensors", *arguments) == (0, ANY, "")
    page = (model.parent / "model.report.html").read_text("utf-8")
    test = load("digits").test
    entries = data_of(page)["images"]
    assert len(entries) == 4
    for entry in entries:
        assert entry["truth"] == names[test.labels[int(entry["name"].removeprefix("test image "))]]
        assert {name for name, _ in entry["top"]} <= set(names)
    heads = re.findall(r"<th[^>]*>(&lt;.*?)</th>", section(page, "confusion"))
    assert [html.unescape(head) for head in heads] == names + names, "columns, then rows"
    assert len(re.findall(r"<b>[✓✗] &lt;[a-j]&gt; \(", section(page, "samples"))) == 4
    assert len(re.findall(r'alt="test image \d+: &lt;[a-j]&gt;"', section(page, "samples"))) == 4


def test_names_that_the_model_and_the_data_do_not_share_are_told(report: Report, model: Path) -> None:
    checkpoint, ours = own.load(model), [f"digit {i}" for i in range(10)]
    own.save(model, checkpoint.config, checkpoint.params, {"class_names": ours})
    arguments = ("--data", "digits", "--preprocessing", "timm", "--samples", "4")
    left, _, said = report("model.safetensors", *arguments)
    assert left == 0
    assert len(said.splitlines()) == 1
    assert "from the checkpoint" in said
    page = (model.parent / "model.report.html").read_text("utf-8")
    assert said.removeprefix("numpy-vit: note: ").strip() in html.unescape(section(page, "confusion"))
    assert {entry["truth"] for entry in data_of(page)["images"]} <= set(ours)
    own.save(model, checkpoint.config, checkpoint.params, {"class_names": [str(i) for i in range(10)]})
    assert report("model.safetensors", *arguments) == (0, ANY, "")


def test_the_page_of_a_vit_tiny_is_below_5_megabytes(report: Report, tmp_path: Path) -> None:
    """Random weights are the worst case: their gradients are noise, which nothing compresses."""
    config = vit_config("vit_tiny_patch16_224", num_classes=10)
    rng = np.random.default_rng(0)
    params = tree.map(lambda leaf: leaf + rng.normal(0, 0.05, leaf.shape).astype(np.float32), vit.init(config, rng))
    own.save("tiny.safetensors", config, params, {})
    for i in range(2):
        Image.fromarray(rng.integers(0, 256, (224, 224, 3), np.uint8)).save(f"{i}.png")
    assert report("tiny.safetensors", "--images", "0.png", "1.png", "--preprocessing", "timm")[0] == 0
    page = (tmp_path / "tiny.report.html").read_bytes()
    assert 2e6 < len(page) < 5e6
    assert len(data_of(page.decode())["images"]) == 1
    assert "the first of 2 images" in section(page.decode(), "explorer")


def test_a_model_that_went_bad_is_told(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint = own.load(model)
    checkpoint.params["norm"]["bias"][:] = np.nan
    own.save(model, checkpoint.config, checkpoint.params, {})
    assert main(["report", str(model), "--images", str(model.parent / "0.png"), "--preprocessing", "timm"]) == 0
    assert "not finite" in capsys.readouterr().err
    assert "numpy-vit inspect" in section((model.parent / "model.report.html").read_text("utf-8"), "explorer")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["missing"], "missing"),
        (["0.png"], "0.png"),
        (["model.safetensors", "--images", "none.png", "--preprocessing", "timm"], "none.png"),
        (["model.safetensors", "--images", "model.safetensors", "--preprocessing", "timm"], "image"),
        (["model.safetensors", "--images", "0.png", "--preprocessing", "vgg"], "choose one of"),
        (["model.safetensors", "--data", "cats", "--preprocessing", "timm"], "cats"),
        (["model.safetensors", "--data", "shapes:20", "--preprocessing", "timm"], "shape"),
        (["model.safetensors", "--out", "nowhere/a.html"], "nowhere"),
        (["model.safetensors", "--out", "."], "--out"),
        (["model.safetensors", "--samples", "-1"], "--samples"),
        (["model.safetensors", "--labels", "none.txt"], "none.txt"),
        (["broken"], "config.json"),
        (["half"], "metrics.jsonl, line 2"),
        (["number"], "metrics.jsonl, line 2"),
        (["list"], "metrics.jsonl, line 1"),
        (["bytes"], "metrics.jsonl"),
        (["nameless", "--preprocessing", "timm"], "name"),
    ],
)
def test_what_cannot_be_is_one_line(
    model: Path, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(model.parent)
    run = '{"recipe": {}, "data": {"name": "digits"}}'
    nameless = '{"recipe": {}, "data": {}}'
    row = '{"epoch": 1, "train_loss": 2.3}\n'
    for name, config, metrics in (
        ("broken", "{", b""), ("half", run, f"{row}{{".encode()), ("number", run, f"{row}3".encode()),
        ("list", run, b"[]"), ("bytes", run, b"\xff"), ("nameless", nameless, b""),
    ):  # fmt: skip
        Path(name).mkdir()
        (Path(name) / "checkpoint.safetensors").write_bytes(model.read_bytes())
        (Path(name) / "config.json").write_text(config)
        (Path(name) / "metrics.jsonl").write_bytes(metrics)
    before = sorted(model.parent.rglob("*"))
    assert status(["report", *arguments]) == 2
    written = capsys.readouterr().err
    assert len(written.splitlines()) == 1, written
    assert words in written
    assert sorted(model.parent.rglob("*")) == before, "nothing was written"


def status(arguments: list[str]) -> int:
    try:
        return main(arguments)
    except SystemExit as left:  # argparse
        return int(str(left.code))
