"""What is made of the times: medians, the rows of scripts/benchmark.py, and the scaling table."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from numpy_vit.bench import measure, scaling
from numpy_vit.bench.workloads import WORKLOADS

SCRIPT = Path(__file__).parents[2] / "scripts" / "benchmark.py"


@pytest.fixture(scope="module")
def benchmark() -> Any:
    spec = importlib.util.spec_from_file_location("benchmark", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_spread() -> None:
    assert measure.spread([5, 1, 2, 4, 3]) == (1, 2, 3, 4, 5)
    assert measure.spread([7.0]).median == 7
    with pytest.raises(ValueError, match="one number"):
        measure.spread([])


def test_memory_grows_with_what_is_allocated() -> None:
    before = measure.resident_bytes()
    block = np.ones(4_000_000)
    peak = measure.peak_bytes()
    assert before is not None
    assert peak is not None
    assert peak >= block.nbytes
    assert measure.gemm_peak(1, attempts=1) > 0


def test_a_row(benchmark: Any) -> None:
    seconds = {"numpy_vit": [0.2, 0.4, 0.3], "torch": [0.4, 0.4, 0.5], "jax": [1, 2, 3]}
    row = benchmark.summary(WORKLOADS["tiny-step"], seconds, {"numpy_vit": 100_000_000, "torch": 400_000_000})
    assert row["name"] == "tiny-step"
    assert row["ours_ms"] == 300
    assert row["theirs_ms"] == {"torch": 400, "jax": 2000}
    assert row["ratio"] == pytest.approx(0.75)
    assert row["spread"] == pytest.approx({"min": 0.5, "q1": 0.55, "q3": 0.8, "max": 1.0})
    assert row["peak_memory"] == {"ours": 100_000_000, "torch": 400_000_000, "ratio": 0.25}
    lines = benchmark.markdown([row]).splitlines()
    header = "| row | numpy_vit ms | torch ms | jax ms | ratio to torch | ratio to jax | peak MB, ours / torch |"
    assert lines[0] == header
    ratios = "0.75 (0.55 to 0.80) | 0.15 (0.15 to 0.20)"
    assert lines[2] == f"| tiny-step | 300 | 400 | 2000 | {ratios} | 100 / 400 = 0.25 |"
    assert "tiny-step" in benchmark.text([row])


def test_a_row_without_frameworks(benchmark: Any) -> None:
    row = benchmark.summary(WORKLOADS["ti16-step"], {"numpy_vit": [0.25]}, {"numpy_vit": 5_000_000})
    assert (row["ratio"], row["spread"], row["theirs_ms"]) == (None, None, {})
    assert (row["ratios"], row["spreads"]) == ({}, {})
    assert benchmark.cells(row, []) == ["ti16-step", "250", "5 / -"]
    assert benchmark.cells(row, ["jax"]) == ["ti16-step", "250", "-", "-", "5 / -"]  # which another row has


def test_outputs_that_differ_are_named(benchmark: Any) -> None:
    ours = {"logits": np.array([[1.0, -4.0]]), "loss": np.array(2.0)}
    assert benchmark.compare(ours, {"logits": np.array([[1.001, -4.0]]), "loss": np.array(2.0)}, "torch") == []
    for wrong in ({**ours, "loss": np.array(2.01)}, {**ours, "loss": np.array(np.nan)}):
        (line,) = benchmark.compare(ours, wrong, "torch")
        assert line.startswith("loss of torch by ")
    (line,) = benchmark.compare(ours, {**ours, "logits": np.zeros((2, 2))}, "torch")
    assert line.startswith("logits of torch")


def test_scaling() -> None:
    every = scaling.points(3)
    assert [point.workers for point in every["workers"]] == [1, 2, 3]
    assert [point.workers for point in scaling.points(1)["workers"]] == [1]
    seconds = {
        point: [point.batch * point.image_size**2 / point.workers] * 3 for own in every.values() for point in own
    }
    found = scaling.rows(3, seconds)
    assert [row["factor"] for row in found if row["varied"] == "batch"] == [1, 2, 4, 8]
    assert [row["tokens"] for row in found if row["varied"] == "tokens"] == [65, 257, 1025]
    assert [row["factor"] for row in found if row["varied"] == "tokens"] == [1, 4, 16]
    assert [round(1 / row["factor"], 6) for row in found if row["varied"] == "workers"] == [1, 2, 3]
    assert len({row["ms_per_image"] for row in found if row["varied"] == "batch"}) == 1
