"""numpy-vit inspect: variants by formula, files with their health."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from numpy_vit import tree
from numpy_vit.checkpoints import own, safetensors
from numpy_vit.cli.main import main
from numpy_vit.models import vit

Cli = Callable[..., subprocess.CompletedProcess[str]]
REAL = Path(os.environ.get("NUMPY_VIT_REAL", "nowhere")) / "vit_tiny_patch16_224" / "model.safetensors"
CONFIG = vit.Config(32, 8, num_classes=7, embed_dim=24, depth=3, num_heads=3, hidden_dim=40)


def trained() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    made = tree.flatten(vit.init(CONFIG, rng))
    return {name: leaf + rng.normal(0, 0.1, leaf.shape).astype(np.float32) for name, leaf in made.items()}


def test_a_variant(cli: Cli) -> None:
    result = cli("inspect", "vit_base_patch16_224")
    assert (result.returncode, result.stderr) == (0, "")
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["blocks.0-11.attn.qkv.weight", "2304x768", "float32", "12", "21,233,664"] in lines
    assert ["blocks.0-11.mlp.act", "1x197x3072", "12"] in lines
    assert ["total", "86,567,656"] in lines
    assert ["total", "17,563,828,224"] in lines
    assert "35.13 GFLOP" in result.stdout
    assert result.stdout.isascii()
    assert all(line == line.rstrip() for line in result.stdout.splitlines())


def test_a_variant_as_json_at_another_size(cli: Cli) -> None:
    found = json.loads(cli("inspect", "vit_huge_patch14_224", "--image-size", "518", "--json").stdout)
    assert sum(found["parameters"].values()) == 633_470_440
    assert found["flops"] / 2e9 == pytest.approx(1016.717, abs=6e-4)
    assert found["intermediates"]["blocks.31.mlp.fc1"] == [1, 1370, 5120]
    assert len([one for one in found["tensors"] if one["name"].startswith("blocks.")]) == 32 * 12
    wide = json.loads(cli("inspect", "vit_tiny_patch16_224", "--image-size", "160x224", "--json").stdout)
    assert wide["intermediates"]["patch_embed"] == [1, 140, 192]
    assert {"name": "pos_embed", "shape": [1, 141, 192], "dtype": "float32"} in wide["tensors"]


def test_what_a_batch_takes(cli: Cli) -> None:
    text = cli("inspect", "vit_tiny_patch16_224", "--batch-size", "8", "--workers", "2").stdout
    assert "estimate for a batch of 8 on this machine, in shards of 2, 2 workers" in text
    for line in ("training step: ", "inference:     "):
        assert re.search(rf"^{line}[\d.]+ [MG]B, [\d.]+ m?s, [\d.]+ m?s an image$", text, re.MULTILINE)
    found = json.loads(cli("inspect", "vit_tiny_patch16_224", "--workers", "1", "--json").stdout)["estimate"]
    assert found.keys() == {
        "batch_size", "workers", "shard_size", "gemm_flops_per_second", "step_bytes", "step_seconds",
        "inference_bytes", "inference_seconds",
    }  # fmt: skip
    assert (found["batch_size"], found["workers"]) == (64, 1)
    assert found["step_bytes"].keys() == {
        "parameters, gradients, optimizer", "shards' gradients", "activations", "images",
    }  # fmt: skip
    assert 0 < sum(found["inference_bytes"].values()) < sum(found["step_bytes"].values())
    assert 0 < found["inference_seconds"] < found["step_seconds"]


def test_a_file_of_ours(cli: Cli, tmp_path: Path) -> None:
    own.save(tmp_path / "ours", CONFIG, tree.unflatten(trained()), {})
    result = cli("inspect", "ours")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("ours: layout numpy_vit")
    assert "health: nothing wrong was found" in result.stdout
    assert "3 heads of 8" in result.stdout
    found = json.loads(cli("inspect", "ours", "--json").stdout)
    assert (found["family"], found["health"]) == ("numpy_vit", [])
    assert found["report"]["missing"] == []
    assert found["config"]["num_heads"] == 3
    assert "attention" in found["parameters"]
    assert "pos_embed" in cli("inspect", "ours", "--image-size", "64").stdout.split("width")[0]


def test_a_port_gone_wrong_is_explained(cli: Cli, tmp_path: Path) -> None:
    tensors = trained()
    tensors["blocks.1.attn.qkv.weight"] = np.ascontiguousarray(tensors["blocks.1.attn.qkv.weight"].T)
    tensors["norm.bias"][3] = np.nan
    safetensors.write(tmp_path / "port", tensors)
    result = cli("inspect", "port", "--heads", "3")
    assert (result.returncode, result.stderr) == (1, "")
    assert "wrong: blocks.1.attn.qkv.weight: transposed: (24, 72)" in result.stdout
    assert "wrong: norm.bias: 1 NaN and 0 infinite of 24 values" in result.stdout
    assert "cannot be loaded as a model" in result.stdout
    assert "blocks.1.attn.qkv.weight" in result.stdout.split("tensors:")[1]
    found = json.loads(cli("inspect", "port", "--heads", "3", "--json").stdout)
    assert {"wrong"} == {one["level"] for one in found["health"]}
    assert found["family"] is None
    assert "flops" not in found


@pytest.mark.skipif(not REAL.is_file(), reason="NUMPY_VIT_REAL does not name a folder with ViT-Ti/16")
def test_a_real_file(cli: Cli) -> None:
    result = cli("inspect", str(REAL))
    assert (result.returncode, result.stderr) == (0, "")
    assert "health: nothing wrong was found" in result.stdout
    assert "5,717,416 values in 152 tensors" in result.stdout
    found = json.loads(cli("inspect", str(REAL), "--json").stdout)
    assert found["family"] == "timm"
    assert sum(found["parameters"].values()) == 5_717_416
    assert found["config"]["num_heads"] == 3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("vit_base_patch16_225",), "225x225 is not a whole number of 16x16 patches"),
        (("vit_basic_patch16_224",), "nearest name is vit_base_patch16_224"),
        (("vit_tiny_patch16_224", "--heads", "5"), "5 does not divide"),
        (("vit_tiny_patch16_224", "--image-size", "big"), "--image-size"),
        (("noise",), "noise"),
        (("missing/model.pth",), "missing/model.pth"),
    ],
)
def test_what_cannot_be_is_one_line(
    tmp_path: Path,
    arguments: tuple[str, ...],
    words: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("noise").write_bytes(b"\x00" * 99)
    try:
        status = main(["inspect", *arguments])
    except SystemExit as left:  # argparse
        status = int(str(left.code))
    assert status == 2
    written = capsys.readouterr().err
    assert len(written.splitlines()) == 1
    assert words in written
