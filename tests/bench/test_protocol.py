"""Drivers and the processes that they time understand each other, and no process outlives its driver's interest."""

from __future__ import annotations

import io
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from numpy_vit.bench import race as race_module
from numpy_vit.bench.blas import environment, one_thread_unless_set
from numpy_vit.bench.protocol import ContenderError, Process, serve
from numpy_vit.bench.race import WARM_UP, race


class Fake:
    def __init__(self) -> None:
        self.runs = 0

    def run(self) -> None:
        self.runs += 1
        if self.runs > 1:
            raise RuntimeError("tired\nvery")

    def outputs(self) -> dict[str, Any]:
        return {"logits": np.arange(3.0), "loss": 2.5}


def answers(*requests: dict[str, Any], build: Any = Fake) -> tuple[int, list[dict[str, Any]]]:
    lines, written = [json.dumps(request) + "\n" for request in requests], io.StringIO()
    status = serve(build, 1000, lines, written, {"more": lambda fake: {"runs": fake.runs}})
    return status, [json.loads(line) for line in written.getvalue().splitlines()]


def test_every_request_has_one_answer(tmp_path: Path) -> None:
    status, said = answers(
        {"do": "run"}, {"do": "more"}, {"do": "run"}, {"do": "fly"},
        {"do": "outputs", "file": str(tmp_path / "o.npz")}, {"do": "memory"},
    )  # fmt: skip
    assert status == 0
    ready, ran, more, failed, unknown, wrote, memory = said
    assert ready == {"ready": True, "base": 1000}
    assert ran["seconds"] >= 0
    assert more == {"runs": 1}
    assert failed == {"error": "RuntimeError: tired very"}
    assert "fly" in unknown["error"]
    assert wrote == {}
    assert memory["base"] == 1000
    assert memory["peak"] > 1_000_000
    with np.load(tmp_path / "o.npz") as stored:
        assert stored["loss"] == 2.5
        np.testing.assert_array_equal(stored["logits"], [0, 1, 2])


def test_what_cannot_be_built_says_so() -> None:
    def build() -> Fake:
        raise ValueError("no such model")

    assert answers({"do": "run"}, build=build) == (1, [{"error": "ValueError: no such model"}])


def test_a_row_in_a_process_of_its_own(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "numpy_vit.bench.contender", "patch16-step", "--batch", "2", "--workers", "2"]
    with Process("ours", command, environment(os.environ, threads=1)) as process:
        assert process.run() > 0
        process.ask("outputs", file=str(tmp_path / "o.npz"))
        memory = process.ask("memory")
        assert 0 < memory["base"] < memory["peak"]
        assert process.ask("gemm")["flops"] > 0
        layers = process.ask("layers")
        assert {"linear", "layernorm"} <= layers["forward"].keys() & layers["backward"].keys()
        with pytest.raises(ContenderError, match=r"^ours: ValueError: unknown request 'fly'$"):
            process.ask("fly")
    with np.load(tmp_path / "o.npz") as stored:
        assert set(stored) == {"logits", "loss", "gradient_norm", "loss_after_step"}
        assert stored["logits"].shape == (2, 10)


def test_a_process_that_ends_says_how() -> None:
    with pytest.raises(ContenderError, match=r"^b ended with status 1 \(ModuleNotFoundError: .*nothing_of_this_name"):
        Process("b", [sys.executable, "-c", "import nothing_of_this_name"], os.environ)


@pytest.mark.skipif(os.name != "posix", reason="process groups")
def test_closing_ends_what_the_process_started_too() -> None:
    program = (
        "import subprocess, sys, json\n"
        "other = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "print(json.dumps({'ready': True, 'other': other.pid}), flush=True)\n"
        "other.wait()"
    )
    with Process("a", [sys.executable, "-c", program], os.environ) as process:
        other = process.about["other"]
        os.kill(other, 0)  # it is there
    deadline = time.monotonic() + 10
    while alive(other):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def alive(pid: int) -> bool:
    """Say whether a process runs; one that has ended and waits for its parent to ask does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"


def test_the_environment_of_a_sharded_row() -> None:
    surroundings = {"PATH": "/bin", "OMP_NUM_THREADS": "7"}
    assert environment(surroundings, None) == {"PATH": "/bin"}
    one = environment(surroundings, 1)
    assert one["OPENBLAS_NUM_THREADS"] == one["OMP_NUM_THREADS"] == one["MKL_NUM_THREADS"] == "1"
    assert environment(one, 3)["OMP_NUM_THREADS"] == "3"
    one_thread_unless_set(surroundings)
    assert surroundings == {**one, "OMP_NUM_THREADS": "7"}


def test_a_race_takes_turns_and_counts_only_after_the_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(race_module, "_PAUSE", 0.0)
    order: list[str] = []

    def contender(name: str) -> Any:
        def run() -> float:
            order.append(name)
            return float(len(order))

        return run

    rounds: list[tuple[int, int]] = []
    seconds = race({name: contender(name) for name in "abc"}, 4, lambda *told: rounds.append(told))
    turns = [order[i : i + 3] for i in range(0, len(order), 3)]
    assert len(turns) == WARM_UP + 4
    assert all(sorted(turn) == ["a", "b", "c"] for turn in turns)
    assert {turn[0] for turn in turns} == {"a", "b", "c"}
    assert [sorted(row) for row in zip(*seconds.values(), strict=True)] == [
        [7, 8, 9],
        [10, 11, 12],
        [13, 14, 15],
        [16, 17, 18],
    ]
    assert rounds == [(i, 6) for i in range(6)]
