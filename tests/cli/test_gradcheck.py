"""numpy-vit gradcheck: its table, and that it fails where a gradient is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

import pytest

from numpy_vit.checks import catalogue

Cli = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.slow  # tests/layers and tests/models check the same gradients one by one
def test_every_layer_and_model_is_checked(cli: Cli) -> None:
    assert _checked(cli("gradcheck")) == set(catalogue.names())


def test_a_table_of_those_that_are_named(cli: Cli) -> None:
    assert _checked(cli("gradcheck", "layernorm", "dot_product_attention", "mlp")) == {
        "layernorm",
        "dot_product_attention",
        "mlp",
    }


def _checked(result: subprocess.CompletedProcess[str]) -> set[str]:
    """The names in a table, all of whose lines say that they are right."""
    assert result.returncode == 0, result.stdout
    lines = result.stdout.splitlines()
    assert all(line.endswith("  ok") for line in lines[1:-1])
    assert lines[-1].endswith("every gradient agrees with finite differences")
    return {line.split()[0] for line in lines[1:-1]}


def test_json_has_a_row_a_line(cli: Cli) -> None:
    result = cli("gradcheck", "softmax", "linear", "--json", "--seed", "4")
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row["name"] for row in found] == ["softmax", "linear", "linear"]
    assert all(row["ok"] and 0 <= row["error"] < 1e-9 for row in found)


def test_a_wrong_gradient_is_status_1_and_named() -> None:
    """The negative control: LayerNorm's backward without its bias's sum over rows is caught from the command line."""
    code = """
import sys
from numpy_vit.layers import layernorm
right = layernorm.backward
def backward(dy, cache):
    dx, grads = right(dy, cache)
    return dx, {**grads, "weight": 3 * grads["weight"]}
layernorm.backward = backward
from numpy_vit.cli.main import main
sys.exit(main(["gradcheck", "layernorm"]))
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "WRONG" in result.stdout
    assert "params.weight is 3 times too large" in result.stdout
