"""A study from the command line: what it says and writes, and that no run is made twice or lost."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

Cli = Callable[..., subprocess.CompletedProcess[str]]
Start = Callable[..., "subprocess.Popen[str]"]

FEW = ("--train-images", "60", "--test-images", "40", "--epochs", "1", "--seeds", "2")  # a run takes 0.05 s


def study(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "study.json").read_text())
    return found


def accuracies(folder: Path) -> dict[tuple[str, int], float]:
    return {(run["arm"], run["seed"]): run["accuracy"] for run in study(folder)["runs"]}


def test_without_a_name_it_lists_the_studies(cli: Cli, tmp_path: Path) -> None:
    result = cli("study")
    assert result.returncode == 0
    for name in ("patch-size", "heads", "depth", "positions", "norm", "pooling", "augmentation"):
        assert re.search(rf"^{name} +[A-Z].*\?$", result.stdout, re.MULTILINE)
    listed = json.loads(cli("study", "--json").stdout)
    assert listed["pooling"]["arms"] == ["class token", "mean", "map"]
    assert not list(tmp_path.iterdir())


def test_a_study_writes_its_folder_and_says_what_it_found(cli: Cli, tmp_path: Path) -> None:
    result = cli("study", "patch-size", *FEW)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    folder = tmp_path / "runs" / "study-patch-size-1"
    assert {path.name for path in folder.iterdir()} == {"study.json", "study.png"}
    lines = re.findall(r"^run (\d)/6  (\dx\d patches), seed (\d)  accuracy +[\d.]+%", result.stdout, re.MULTILINE)
    arms = ["8x8 patches", "4x4 patches", "2x2 patches"]
    assert lines == [(str(3 * seed + i + 1), arm, str(seed)) for seed in (0, 1) for i, arm in enumerate(arms)]
    assert "\r" not in result.stdout
    summary = study(folder)["summary"]
    for arm in summary["arms"]:
        assert re.search(rf"^{arm['arm']} .* {100 * arm['mean']:.2f} ", result.stdout, re.MULTILINE)
        assert arm["accuracies"] == [accuracies(folder)[arm["arm"], seed] for seed in (0, 1)]
    assert [arm["tokens"] for arm in summary["arms"]] == [64, 16, 4]
    verdicts = re.findall(r"(within the spread|worse, beyond the spread|no spread was seen)", result.stdout)
    assert len(verdicts) == len(summary["against_best"]) == 2
    with Image.open(folder / "study.png") as picture:
        assert picture.size[0] > 600


def test_two_studies_are_the_same_in_folders_of_their_own(cli: Cli, tmp_path: Path) -> None:
    for workers in ("1", "2"):
        assert cli("study", "augmentation", *FEW, "--workers", workers).returncode == 0
    first, second = (tmp_path / "runs" / f"study-augmentation-{number}" for number in (1, 2))
    assert accuracies(first) == accuracies(second)
    assert (first / "study.png").read_bytes() == (second / "study.png").read_bytes()
    losses = [[run["last"]["train_loss"] for run in study(folder)["runs"]] for folder in (first, second)]
    assert losses[0] == losses[1]


def test_json_is_all_that_stdout_has(cli: Cli, tmp_path: Path) -> None:
    result = cli("study", "augmentation", *FEW, "--json", "--out", "a")
    assert result.returncode == 0
    found = json.loads(result.stdout)
    assert found == study(tmp_path / "a")["summary"]
    assert [arm["arm"] for arm in found["arms"]] == ["with", "without"]
    assert "run 1/4" in result.stderr


def test_more_seeds_go_on_from_those_there_are(cli: Cli, tmp_path: Path) -> None:
    assert cli("study", "augmentation", *FEW, "--out", "a").returncode == 0
    before = study(tmp_path / "a")["runs"]
    again = cli("study", "augmentation", *FEW[:-1], "3", "--out", "a")
    assert again.returncode == 0
    assert study(tmp_path / "a")["runs"][:4] == before  # to the measured second: they were not run again
    assert again.stdout.count("  kept\n") == 4
    assert study(tmp_path / "a")["summary"]["seeds"] == [0, 1, 2]
    fewer = cli("study", "augmentation", *FEW[:-1], "1", "--out", "a")
    assert "no spread was seen" in fewer.stdout
    assert len(study(tmp_path / "a")["runs"]) == 6  # none is thrown away


def test_a_stopped_study_goes_on(cli: Cli, start: Start, tmp_path: Path) -> None:
    options = ("--train-images", "120", "--test-images", "40", "--seeds", "2", "--epochs", "6")
    assert cli("study", "pooling", *options, "--out", "whole").returncode == 0
    process = start("study", "pooling", *options, "--out", "a b")
    end = time.monotonic() + 60
    while not ((tmp_path / "a b" / "study.json").exists() and study(tmp_path / "a b")["runs"]):
        assert time.monotonic() < end
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == ""
    kept = study(tmp_path / "a b")["runs"]
    assert 1 <= len(kept) < 6
    last = out.splitlines()[-1]
    assert last.startswith(f"stopped after {len(kept)} of 6 runs; go on with: numpy-vit study pooling ")
    assert last.endswith(f" {' '.join(options)} --out 'a b'")
    result = cli("study", "pooling", *options, "--out", "a b")
    assert result.returncode == 0, result.stderr
    assert study(tmp_path / "a b")["runs"][: len(kept)] == kept
    assert accuracies(tmp_path / "a b") == accuracies(tmp_path / "whole")
    assert (tmp_path / "a b" / "study.png").read_bytes() == (tmp_path / "whole" / "study.png").read_bytes()


def test_a_folder_with_another_study_is_refused(cli: Cli, tmp_path: Path) -> None:
    assert cli("study", "augmentation", *FEW, "--out", "a").returncode == 0
    before = {path.name: path.read_bytes() for path in (tmp_path / "a").iterdir()}
    for arguments, words in [
        (("heads", *FEW), 'study is "augmentation" there and "heads" here'),
        (("augmentation", *FEW, "--epochs", "2"), "epochs is 1 there and 2 here"),
        (("augmentation", *FEW, "--train-images", "70"), "train_images is 60 there and 70 here"),
    ]:
        result = cli("study", *arguments, "--out", "a")
        assert result.returncode == 2
        assert words in result.stderr
        assert len(result.stderr.splitlines()) == 1
    assert {path.name: path.read_bytes() for path in (tmp_path / "a").iterdir()} == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["legs"], ["no study is called 'legs'", "patch-size", "augmentation"]),
        (["--seeds", "3"], ["--seeds needs the NAME of a study"]),
        (["heads", "--seeds", "0"], ["--seeds", "at least 1"]),
        (["heads", "--data", "cats"], ["cats", "digits"]),
        (["patch-size", "--data", "shapes:10", "--image-size", "28"], ["28x28", "8x8 patches", "--image-size 32"]),
    ],
)
def test_a_wrong_study_is_one_line_and_status_2(
    cli: Cli, tmp_path: Path, arguments: list[str], words: list[str]
) -> None:
    result = cli("study", *arguments)
    assert result.returncode == 2
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    for word in words:
        assert word in result.stderr
    assert not list(tmp_path.iterdir())
