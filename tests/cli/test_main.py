"""What is wrong with a command is one line on stderr and exit status 2; nothing on disk changes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from numpy_vit import __version__

Cli = Callable[..., subprocess.CompletedProcess[str]]
COMMANDS = (
    "train", "eval", "pretrain", "probe", "study", "data", "predict", "attention", "saliency", "positions",
    "filters", "report", "inspect", "convert", "compare", "gradcheck", "explain",
    "exercise", "bench",
)  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["COMMAND", "--help"]),
        (["fly"], ["fly", "--help"]),
        (["train", "--epochs", "many"], ["--epochs", "many"]),
        (["train", "--epochs", "0"], ["epochs has to be at least 1, not 0"]),
        (["train", "--data", "cats"], ["cats", "digits", "fashion-mnist"]),
        (["train", "--data", "mnist:/nowhere"], ["/nowhere"]),
        (["train", "--model", "vit_giga"], ["unknown variant 'vit_giga'", "vit_tiny_patch16_224"]),
        (["train", "--num-heads", "5"], ["num_heads 5 does not divide embed_dim 64", "choose 4 heads"]),
        (["train", "--patch-size", "3"], ["8x8", "3x3", "choose a patch_size"]),
        (["train", "--set", "colour=red"], ["colour=red", "embed_dim"]),
        (["train", "--set", "pos_embed=none", "--set", "depth=deep"], ["deep"]),
        (["train", "--lr", "nan"], ["lr has to be positive"]),
        (["train", "--workers", "0"], ["at least 1"]),
        (["train", "--overfit", "5000"], ["1 to 1438 images"]),
        (["train", "--resume", "nowhere"], ["nowhere", "holds no run"]),
        (["train", "--resume", "nowhere", "--epochs", "3", "--flip"], ["leave out --epochs, --flip"]),
        (["eval", "nowhere.safetensors"], ["nowhere.safetensors"]),
        (["eval", "."], ["checkpoint.safetensors"]),
        (["gradcheck", "layernrom"], ["unknown layer 'layernrom'", "layernorm"]),
        (["gradcheck", "--seed", "-1"], ["seed"]),
        (["explain", "everything"], ["unknown layer 'everything'"]),
        (["bench", "everything"], ["unknown row 'everything'", "tiny-step"]),
    ],
)
def test_a_wrong_command_is_one_line_and_status_2(
    cli: Cli, tmp_path: Path, arguments: list[str], words: list[str]
) -> None:
    result = cli(*arguments)
    assert result.returncode == 2
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1, result.stderr
    for word in words:
        assert word in result.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(cli: Cli, command: str) -> None:
    result = cli(command, "--help")
    assert result.returncode == 0
    description, _, examples = result.stdout.partition("examples:")
    assert f"\n  numpy-vit {command} " in examples
    assert all(len(line) <= 80 for line in description.splitlines())  # where nobody says how wide a terminal is


def test_version(cli: Cli) -> None:
    assert cli("--version").stdout == f"numpy_vit {__version__}\n"


def test_numpy_is_not_loaded_before_the_number_of_blas_threads_is_chosen() -> None:
    code = "import sys, numpy_vit.cli.main, numpy_vit.training.allocator; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_examples_know_every_command(cli: Cli) -> None:
    examples = cli("--help").stdout.partition("examples:")[2]
    for command in COMMANDS:
        assert f"numpy-vit {command}" in examples


def test_a_reader_that_leaves_early_is_no_error() -> None:
    command = f"{sys.executable} -m numpy_vit explain | head -1"
    result = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert result.returncode == 0
    assert result.stderr == ""
    assert result.stdout.startswith("linear")
