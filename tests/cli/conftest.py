"""Running the command line as a user does: in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

Result = subprocess.CompletedProcess[str]
TINY = ("--embed-dim", "16", "--depth", "1", "--num-heads", "2", "--hidden-dim", "16")  # an epoch takes 0.2 s


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-W", "error", "-m", "numpy_vit", *arguments]


@pytest.fixture
def cli(tmp_path: Path) -> Callable[..., Result]:
    """Return a function that runs numpy-vit in an empty folder and captures what it prints."""

    def run(*arguments: str, cwd: Path = tmp_path) -> Result:
        return subprocess.run(command(*arguments), cwd=cwd, capture_output=True, text=True, timeout=120, check=False)

    return run


@pytest.fixture
def start(tmp_path: Path) -> Callable[..., subprocess.Popen[str]]:
    """Return a function that starts numpy-vit in an empty folder and does not wait for it."""

    def begin(*arguments: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        pipe = subprocess.PIPE
        return subprocess.Popen(command(*arguments), cwd=tmp_path, stdout=pipe, stderr=pipe, text=True, env=environment)

    return begin


@pytest.fixture
def tiny() -> tuple[str, ...]:
    """The options of a model so small that an epoch takes a fraction of a second."""
    return TINY


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    """Return a picture of 40x50 random pixels."""
    pixels = np.random.default_rng(1).integers(0, 250, (40, 50, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "photo.png")
    return tmp_path / "photo.png"
