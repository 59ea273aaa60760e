"""Pre-training, probing and fine-tuning what was pre-trained, from the command line."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from numpy_vit.checkpoints import own
from numpy_vit.training import loop
from numpy_vit.training.run_folder import RunFolder, resume

Cli = Callable[..., subprocess.CompletedProcess[str]]
SMALL = (
    "--data", "digits", "--patch-size", "2", "--embed-dim", "16", "--depth", "1", "--num-heads", "2", "--hidden-dim",
    "32", "--decoder-embed-dim", "16", "--decoder-depth", "1", "--decoder-num-heads", "2", "--mask-ratio", "0.5",
)  # fmt: skip


def test_from_pixels_to_a_probe_and_a_classifier(cli: Cli, tmp_path: Path) -> None:
    result = cli("pretrain", *SMALL, "--epochs", "2", "--test-every", "1", "--out", "mae")
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    folder = tmp_path / "mae"
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert rows[1]["test_loss"] < rows[0]["test_loss"] < 1.2  # 1 is what predicting each patch's mean costs
    assert "test_accuracy" not in rows[0]
    with Image.open(folder / "reconstruction.png") as picture:
        assert np.asarray(picture).std() > 10
    checkpoint = own.load(folder / "checkpoint.safetensors")
    assert (checkpoint.config.num_classes, checkpoint.config.depth) == (0, 1)

    probed = json.loads(cli("probe", "mae", "--json").stdout)
    assert (probed["train_images"], probed["test_images"], probed["features"]) == (1438, 359, 16)
    assert 0.2 < probed["linear_accuracy"] <= 1
    untrained = cli("probe", "mae", "--untrained", "--train-images", "100", "--test-images", "50")
    assert "100 training and 50 test images, 16 features each of the untrained model" in untrained.stdout

    tuned = cli("train", "--init", "mae", "--epochs", "1", "--crop-scale", "0.9", "--out", "tuned")
    assert tuned.returncode == 0, tuned.stderr
    assert "accuracy" in cli("eval", "tuned").stdout


def test_a_stopped_run_goes_on_to_the_same_bits(cli: Cli, tmp_path: Path) -> None:
    assert cli("pretrain", *SMALL, "--epochs", "2", "--out", "whole").returncode == 0
    folder, task, _ = resume(tmp_path / "whole", 1)
    part = tmp_path / "part"
    begun = RunFolder(part, folder.data)
    begun.create(task)
    begun.save(task, loop.start(task))  # all that a run killed in its first epoch has saved
    resumed = cli("pretrain", "--resume", "part", "--workers", "1")
    assert resumed.returncode == 0, resumed.stderr
    name = "checkpoint.safetensors"
    assert (part / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_what_does_not_go_together(cli: Cli, tmp_path: Path) -> None:
    assert cli("pretrain", *SMALL, "--epochs", "1", "--out", "mae").returncode == 0
    wrong = {
        ("train", "--resume", "mae"): "go on with numpy-vit pretrain --resume mae",
        ("pretrain", *SMALL, "--mixup", "0.8", "--layer-decay", "0.8"): "no use for --layer-decay, --mixup",
        ("eval", "mae"): "a model without a head",
        ("pretrain", *SMALL, "--mask-ratio", "1.5"): "mask_ratio 1.5 has to lie between 0 and 1",
        ("pretrain", "--resume", "mae", "--epochs", "3"): "leave out --epochs",
        ("pretrain", "--resume", "mae", "--mask-ratio", "0.1", "--recipe", "mae"): "leave out --recipe, --mask-ratio",
        ("pretrain", *SMALL, "--padding", "8", "--pad-mode", "reflect"): "reflect needs a padding below the sides",
        ("probe", "mae", "--untrained", "--seed", "-1"): "'-1' is not a whole number",
        ("attention", "shapes:1", "--checkpoint", "mae", "--out", "x", "--untrained", "--seed", "-1"): "'-1' is not",
        ("pretrain", *SMALL, "--set", "pos_embed=learned"): "pos_embed 'sincos_2d_mae'",
    }
    for arguments, message in wrong.items():
        result = cli(*arguments)
        assert (result.returncode, len(result.stderr.splitlines())) == (2, 1), (arguments, result.stderr)
        assert message in result.stderr


def test_the_whole_recipe_is_printed(cli: Cli) -> None:
    about = json.loads(cli("pretrain", "--print-recipe", "--recipe", "cifar10", "--decoder-depth", "3").stdout)
    assert about["autoencoder"] == {
        "decoder_embed_dim": 64, "decoder_depth": 3, "decoder_num_heads": 4, "mask_ratio": 0.75, "norm_pix_loss": True,
    }  # fmt: skip
    assert about["recipe"]["optimizer"] == "muon"
    assert not {"label_smoothing", "patch_drop", "mixup"} & about["recipe"].keys()
