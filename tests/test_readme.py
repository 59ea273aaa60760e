"""The README's Python runs as it is written, and prints what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from numpy_vit.data import Preprocessing, load
from numpy_vit.models import vit, vit_config
from numpy_vit.training import classification, loop
from numpy_vit.training.recipes import RECIPES

README = (Path(__file__).parent.parent / "README.md").read_text()
TRAINING, CHECK = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_the_training_in_python_is_that_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    """An epoch of it ends with the bits of `numpy-vit train`: the same start, order, augmentation and updates."""
    variant, recipe = RECIPES["digits"].variant, RECIPES["digits"].recipe
    data = load("digits")
    task = loop.Task(classification, vit, vit_config(str(variant)), recipe, data, Preprocessing.of(data.train))
    state = loop.start(task)
    rows: list[Any] = []
    loop.train(task, state, lambda *_: None, lambda _, row: rows.append(row), lambda: len(rows) == 1)
    names: dict[str, Any] = {}
    stopped = TRAINING.replace("for epoch in range(epochs):", "for epoch in range(1):")
    assert stopped != TRAINING
    exec(compile(stopped, "README.md", "exec"), names)
    assert names["epochs"] == recipe.epochs
    assert names["flat"].tobytes() == state.flat.tobytes()
    accuracies = re.findall(r"test accuracy ([\d.]+%)", capsys.readouterr().out)
    assert accuracies == [f"{row['test_accuracy']:.2%}" for row in rows]
    assert np.isfinite(names["flat"]).all()


def test_it_is_about_thirty_lines() -> None:
    assert len(TRAINING.splitlines()) <= 36


def test_the_gradient_check_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(CHECK, "README.md", "exec"), {})
    printed = capsys.readouterr().out
    assert printed
    for line in printed.splitlines():
        assert f"    {line}".rstrip() in README
