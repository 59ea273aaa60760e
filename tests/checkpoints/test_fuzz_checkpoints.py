"""A short run of scripts/fuzz_checkpoints.py, and that it would notice."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "fuzz_checkpoints.py"


@pytest.fixture(scope="module")
def fuzz():
    spec = importlib.util.spec_from_file_location("fuzz_checkpoints", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_only_checkpoint_errors_and_little_memory(fuzz, tmp_path):
    figures, fault = fuzz.run(400, 0, tmp_path)
    assert fault is None
    assert sum(figures.outcomes.values()) == 400
    assert min(figures.outcomes["read"], figures.outcomes["refused"]) > 40  # neither harmless nor all cut to pieces


def test_seeds_are_undamaged_and_of_every_format(fuzz, tmp_path):
    for name, data in fuzz.seeds(tmp_path).items():
        (tmp_path / name).write_bytes(data)
        assert fuzz.read_tensors(tmp_path / name)


def test_another_exception_or_a_large_allocation_is_a_fault(fuzz, tmp_path, monkeypatch):
    def fails(path, mmap):
        raise KeyError("x")

    monkeypatch.setattr(fuzz, "read_tensors", fails)
    assert "KeyError" in fuzz.run(1, 0, tmp_path)[1]
    monkeypatch.setattr(fuzz, "LIMIT", 1000)
    monkeypatch.setattr(fuzz, "read_tensors", lambda path, mmap: {"x": fuzz.np.zeros(1000)})
    assert "bytes were allocated" in fuzz.run(1, 0, tmp_path)[1]
