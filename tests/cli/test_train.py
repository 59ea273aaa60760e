"""Training from the command line: what it prints and writes, and that no kind of stop loses a run."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from numpy_vit.checkpoints import own, safetensors
from numpy_vit.cli import estimates

Cli = Callable[..., subprocess.CompletedProcess[str]]
Start = Callable[..., "subprocess.Popen[str]"]
Options = tuple[str, ...]

ROW = {
    "epoch", "train_loss", "train_accuracy", "test_loss", "test_accuracy", "learning_rate", "images_per_second",
    "data_share", "seconds",
}  # fmt: skip
TIMED = {"seconds", "images_per_second", "data_share"}


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def timeless(folder: Path) -> list[dict[str, Any]]:
    return [{key: row[key] for key in ROW - TIMED} for row in rows(folder)]


def wait_for_epoch(folder: Path) -> None:
    end = time.monotonic() + 60
    while not ((folder / "metrics.jsonl").exists() and rows(folder)):
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_run_writes_its_folder(cli: Cli, tmp_path: Path, tiny: Options) -> None:
    result = cli("train", "--epochs", "2", *tiny)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    folder = tmp_path / "runs" / "digits-1"
    assert {path.name for path in folder.iterdir()} == {
        "config.json", "metrics.jsonl", "checkpoint.safetensors", "optimizer.safetensors", "curves.png",
    }  # fmt: skip
    assert [row["epoch"] for row in rows(folder)] == [1, 2]
    for row in rows(folder):
        assert row.keys() == ROW
        assert 0 <= row["train_accuracy"] <= 1
        assert row["images_per_second"] > 0
        assert 0 < row["data_share"] < 1
    about = json.loads((folder / "config.json").read_text())
    assert about["recipe"]["epochs"] == 2
    assert about["model"]["embed_dim"] == 16
    checkpoint = own.load(folder / "checkpoint.safetensors")
    assert checkpoint.config.depth == 1
    assert checkpoint.extra["class_names"] == [str(digit) for digit in range(10)]
    with Image.open(folder / "curves.png") as curves:
        assert curves.size[0] > 600
    epochs = re.findall(r"^epoch (\d)/2 .*test loss [\d.]+ accuracy +[\d.]+%", result.stdout, re.MULTILINE)
    assert epochs == ["1", "2"]
    assert "\r" not in result.stdout
    assert re.search(r"^about \d+ s and \d+ MB: 2 epochs of 23 steps$", result.stdout, re.MULTILINE)
    assert re.search(r"^data loading took \d+\.\d% of the time$", result.stdout, re.MULTILINE)
    assert f"{rows(folder)[-1]['test_accuracy']:.2%}" in result.stdout.splitlines()[-2]


def test_two_runs_are_the_same_bits_in_folders_of_their_own(cli: Cli, tmp_path: Path, tiny: Options) -> None:
    for workers in ("1", "2"):
        assert cli("train", "--epochs", "1", "--workers", workers, *tiny).returncode == 0
    first, second = tmp_path / "runs" / "digits-1", tmp_path / "runs" / "digits-2"
    assert (first / "checkpoint.safetensors").read_bytes() == (second / "checkpoint.safetensors").read_bytes()
    assert timeless(first) == timeless(second)


def test_a_folder_with_a_run_is_not_overwritten(cli: Cli, tmp_path: Path, tiny: Options) -> None:
    assert cli("train", "--epochs", "1", "--out", "a", *tiny).returncode == 0
    before = {path.name: path.read_bytes() for path in (tmp_path / "a").iterdir()}
    again = cli("train", "--epochs", "1", "--out", "a", *tiny)
    assert again.returncode == 2
    assert "--resume a" in again.stderr
    assert {path.name: path.read_bytes() for path in (tmp_path / "a").iterdir()} == before


@pytest.mark.parametrize("how", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow), signal.SIGKILL])
def test_a_stopped_run_resumes_to_the_same_bits(
    cli: Cli, start: Start, tmp_path: Path, tiny: Options, how: signal.Signals
) -> None:
    options = ("--epochs", "8", "--batch-size", "16", "--ema", "0.99", *tiny)
    assert cli("train", "--out", "whole", *options).returncode == 0
    process = start("train", "--out", "stopped", *options)
    wait_for_epoch(tmp_path / "stopped")
    time.sleep(0.07)  # into an epoch
    process.send_signal(how)
    out, err = process.communicate(timeout=60)
    assert err == ""
    if how == signal.SIGKILL:
        assert process.returncode == -signal.SIGKILL
    else:
        assert process.returncode == 130
        assert "numpy-vit train --resume stopped" in out.splitlines()[-1]
    assert len(rows(tmp_path / "stopped")) < 8
    resumed = cli("train", "--resume", "stopped")
    assert resumed.returncode == 0, resumed.stderr
    for name in ("checkpoint.safetensors", "config.json"):
        assert (tmp_path / "stopped" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    whole, stopped = (safetensors.read(tmp_path / run / "optimizer.safetensors")[0] for run in ("whole", "stopped"))
    assert whole.keys() == stopped.keys()
    assert all(whole[name].tobytes() == stopped[name].tobytes() for name in whole)
    assert timeless(tmp_path / "stopped") == timeless(tmp_path / "whole")
    finished = cli("train", "--resume", "stopped")
    assert finished.returncode == 0
    assert "is finished: 8 epochs" in finished.stdout


def test_a_broken_run_is_refused_and_left_alone(cli: Cli, tmp_path: Path, tiny: Options) -> None:
    assert cli("train", "--epochs", "1", "--out", "a", *tiny).returncode == 0
    rows = (tmp_path / "a" / "metrics.jsonl").read_bytes()
    (tmp_path / "a" / "metrics.jsonl").write_text("3\n")
    assert "metrics.jsonl, line 1 is '3', not an object" in cli("train", "--resume", "a").stderr
    (tmp_path / "a" / "metrics.jsonl").write_bytes(rows)
    state = tmp_path / "a" / "optimizer.safetensors"
    for damage, words in [
        (state.read_bytes()[:-5], "optimizer.safetensors"),
        (b"", "optimizer.safetensors"),
    ]:
        state.write_bytes(damage)
        result = cli("train", "--resume", "a")
        assert result.returncode == 2
        assert words in result.stderr
        assert len(result.stderr.splitlines()) == 1
        assert state.read_bytes() == damage
    (tmp_path / "a" / "config.json").write_text("{")
    assert "is not JSON" in cli("train", "--resume", "a").stderr


def test_overfit_says_whether_the_model_can_learn(cli: Cli, tmp_path: Path, tiny: Options) -> None:
    result = cli("train", "--overfit", "16", "--embed-dim", "32")
    assert result.returncode == 0, result.stdout + result.stderr
    assert re.fullmatch(r"16 images: 100% correct, loss 0\.00\d+ after \d+ steps, the model can learn\n", result.stdout)
    assert not list(tmp_path.iterdir())
    failed = cli("train", "--overfit", "4", "--lr", "1e-9", *tiny)
    assert failed.returncode == 1
    assert "the model or its rate is wrong" in failed.stdout


def test_a_loss_that_is_not_finite_names_the_tensor(cli: Cli, tmp_path: Path, tiny: Options) -> None:
    result = cli("train", "--optimizer", "sgd", "--lr", "1e30", "--warmup-epochs", "0", "--out", "a", *tiny)
    assert result.returncode == 1
    assert len(result.stderr.splitlines()) == 1
    assert "the first tensor that is not finite is" in result.stderr
    assert own.load(tmp_path / "a" / "checkpoint.safetensors").config.embed_dim == 16


def test_a_large_patch_is_allowed_with_a_note(tmp_path: Path, tiny: Options) -> None:
    command = [sys.executable, "-m", "numpy_vit", "train", "--epochs", "1", "--patch-size", "4", *tiny]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0
    assert result.stderr.startswith("numpy-vit: note: 4x4 patches leave only 4 tokens")
    assert len(result.stderr.splitlines()) == 1


def test_a_terminal_sees_a_moving_line(tmp_path: Path, tiny: Options) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "numpy_vit", "train", "--epochs", "2", "--batch-size", "4", *tiny]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=theirs, stderr=theirs, stdin=theirs)
    os.close(theirs)
    seen = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # the process has closed its end
            break
        seen += piece
        if not piece:
            break
    assert process.wait(60) == 0
    assert re.search(
        rb"\r\x1b\[2Kepoch 1/2  batch \d+/360  loss [\d.]+  accuracy [\d.]+%  \d+ images/s  \d:\d\d left", seen
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "1 s"), (54.4, "54 s"), (99.9, "100 s"), (130, "2 min"), (5900, "98 min"), (12240, "3.4 h")],
)
def test_durations_are_rough(seconds: float, text: str) -> None:
    assert estimates.about_seconds(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"), [(3, "1 MB"), (61_400_000, "61 MB"), (340_000_000, "0.34 GB"), (12_345_000_000, "12 GB")]
)
def test_sizes_are_rough(count: int, text: str) -> None:
    assert estimates.about_bytes(count) == text
