"""numpy-vit explain: derivation, code and numbers of every layer."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable

import pytest

from numpy_vit.checks import catalogue
from numpy_vit.cli.main import main

Cli = Callable[..., subprocess.CompletedProcess[str]]


def test_the_list_is_in_reading_order(cli: Cli) -> None:
    lines = cli("explain").stdout.splitlines()
    assert [line.split()[0] for line in lines] == catalogue.names()
    assert all(len(line.split()) > 3 for line in lines)


@pytest.mark.parametrize("name", catalogue.names())
def test_every_layer_is_explained(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", name]) == 0
    text = capsys.readouterr().out
    assert re.search(r"^\(1\) ", text, re.MULTILINE)
    assert "def forward(" in text
    assert "def backward(" in text
    differences = [float(number) for number in re.findall(r"largest difference (\S+)", text)]
    assert differences
    assert max(differences) < 1e-6
    numbers = [line.split()[1:] for line in text.splitlines() if line.startswith("  analytic")]
    assert any(float(number) != 0 for row in numbers for number in row)
