"""numpy-vit bench: its table, its JSON, its errors, and no process left behind."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

Cli = Callable[..., subprocess.CompletedProcess[str]]
Start = Callable[..., subprocess.Popen[str]]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nonsense"], ["'nonsense'", "tiny-step, patch16-step, ti16-step, b16-infer-8, b16-infer-1, ti16-infer-32"]),
        (["tiny-step", "--scaling"], ["--scaling", "names"]),
        (["tiny-step", "--json", "nowhere/b.json"], ["nowhere/b.json"]),
        (["tiny-step", "--json", "."], [". is a folder"]),
        (["tiny-step", "--repeats", "0"], ["--repeats", "'0'", "at least 1"]),
        (["tiny-step", "--workers", "0"], ["--workers", "'0'", "at least 1"]),
        (["--fast"], ["--fast"]),
    ],
)
def test_a_wrong_command_is_one_line_and_status_2(cli: Cli, arguments: list[str], words: list[str]) -> None:
    result = cli("bench", *arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert len(result.stderr.splitlines()) == 1, result.stderr
    for word in words:
        assert word in result.stderr


def test_a_row(cli: Cli, tmp_path: Path) -> None:
    result = cli("bench", "patch16-step", "--repeats", "1", "--workers", "2", "--json", "bench.json")
    assert (result.returncode, result.stderr) == (0, "")
    for word in ("images/s", "of GEMM", "peak MB", "optimizer ms", "layer by layer", "linear", "backward ms"):
        assert word in result.stdout
    _, halves, _, layers = result.stdout.split("\n\n")
    assert shares(halves.splitlines()[2]) == pytest.approx(100, abs=0.2)
    assert shares(layers) == pytest.approx(100, abs=1)  # a dozen rounded numbers
    assert [line.split("  ")[0] for line in layers.splitlines()[-3:]] == [
        "sum of gradients", "optimizer", "the rest",
    ]  # fmt: skip
    assert "\x1b" not in result.stdout
    found = json.loads((tmp_path / "bench.json").read_text())
    assert found.keys() == {"workers", "repeats", "rows"}
    (row,) = found["rows"]
    assert row["images_per_second"] == pytest.approx(64_000 / row["ms"])
    assert row["gflops"] == pytest.approx(row["flop"] / row["ms"] / 1e6)
    assert row["share_of_peak"] == pytest.approx(row["gflops"] / row["gemm_peak_gflops"])
    assert row["peak_memory"] > 0
    assert row["threads"] == {"ours": 2, "blas": 1}
    assert row["spread_ms"] == dict.fromkeys(("min", "q1", "q3", "max"), row["ms"])  # of one run
    assert row["layers_seconds"].keys() == {"forward", "backward", "beside", "total"}
    assert row["layers_seconds"]["beside"].keys() == {"optimizer", "sum of gradients"}
    step = row["step_seconds"]
    assert step.keys() == {"gradients", "optimizer", "total"}
    assert step["gradients"] + step["optimizer"] == pytest.approx(step["total"], rel=0.1)
    assert list(tmp_path.iterdir()) == [tmp_path / "bench.json"]


def shares(text: str) -> float:
    """The sum of all percentages in a text."""
    return sum(float(found) for found in re.findall(r"([\d.]+)%", text))


@pytest.mark.slow
def test_inference_has_no_optimizer(cli: Cli) -> None:
    result = cli("bench", "b16-infer-1", "--repeats", "1", "--workers", "2")
    assert (result.returncode, result.stderr) == (0, "")
    assert "b16-infer-1, layer by layer in 2 threads of BLAS, " in result.stdout
    assert "optimizer" not in result.stdout
    assert "the rest" in result.stdout


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="looks for child processes in /proc")
def test_an_interrupt_leaves_no_process_behind(start: Start) -> None:
    process = start("bench", "patch16-step", "--repeats", "100000")
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    deadline = time.monotonic() + 30
    while not (found := children.read_text().split()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert (process.returncode, said) == (130, "\nnumpy-vit: interrupted\n")
    while any(Path(f"/proc/{child}").exists() for child in found):
        assert time.monotonic() < deadline
        time.sleep(0.02)
