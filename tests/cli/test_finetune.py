"""Fine-tuning, freezing, distilling, recipes and subsets from the command line."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from numpy_vit import tree
from numpy_vit.checkpoints import own, safetensors
from numpy_vit.checks.examples import vit_example
from numpy_vit.models import deit, vit

Cli = Callable[..., subprocess.CompletedProcess[str]]
Options = tuple[str, ...]


@pytest.fixture
def trained(cli: Cli, tmp_path: Path, tiny: Options) -> Path:
    result = cli("train", "--epochs", "1", "--out", "first", *tiny)
    assert result.returncode == 0, result.stderr
    return tmp_path / "first"


def test_fine_tuning_begins_with_the_body_and_another_head(cli: Cli, trained: Path, tmp_path: Path) -> None:
    result = cli("train", "--init", "first", "--freeze", "body", "--epochs", "1", "--out", "second")
    assert result.returncode == 0, result.stderr
    assert "first: numpy_vit, a new head for 10 classes; statistics from the checkpoint" in result.stdout
    assert "parameters frozen" in result.stdout
    before, after = (own.load(folder / "checkpoint.safetensors") for folder in (trained, tmp_path / "second"))
    assert after.config.drop_path_rate == 0.1  # the recipe's
    old, new = tree.flatten(before.params), tree.flatten(after.params)
    assert {name for name in old if not np.array_equal(old[name], new[name])} == {"head.weight", "head.bias"}
    about = json.loads((tmp_path / "second" / "config.json").read_text())
    assert about["init"] == "first"
    resumed = cli("train", "--resume", "second")
    assert "is finished" in resumed.stdout


def test_another_image_size_resizes_the_positions(cli: Cli, trained: Path, tmp_path: Path) -> None:
    result = cli("train", "--init", "first", "--image-size", "16", "--epochs", "1", "--out", "second")
    assert result.returncode == 0, result.stderr
    assert "1x16x16" in result.stdout
    assert "patch 1x8, 32 patches" in result.stdout
    before, after = (own.load(folder / "checkpoint.safetensors") for folder in (trained, tmp_path / "second"))
    assert (before.params["pos_embed"].shape[1], after.params["pos_embed"].shape[1]) == (8, 32)


def test_a_student_learns_from_a_run_and_from_its_logits(
    cli: Cli, trained: Path, tmp_path: Path, tiny: Options
) -> None:
    soft = cli("train", "--teacher", "first", "--epochs", "1", "--out", "soft", *tiny)
    assert soft.returncode == 0, soft.stderr
    distilled = cli("train", "--teacher", "first", "--distilled", "--distill", "hard", "--epochs", "1", "--out", "two",
                    *tiny)  # fmt: skip
    assert distilled.returncode == 0, distilled.stderr
    assert own.load(tmp_path / "two" / "checkpoint.safetensors").model is deit
    assert "accuracy" in cli("eval", "two").stdout
    np.savez(tmp_path / "logits.npz", logits=np.zeros((1438, 10), np.float32))
    saved = cli("train", "--teacher", "logits.npz", "--epochs", "1", "--out", "saved", *tiny)
    assert saved.returncode == 0, saved.stderr
    np.savez(tmp_path / "few.npz", logits=np.zeros((14, 10), np.float32))
    few = cli("train", "--teacher", "few.npz", "--epochs", "1", "--out", "few", *tiny)
    assert few.returncode == 2
    assert len(few.stderr.splitlines()) == 1


def test_logits_are_written_for_a_student_and_refused_for_another(
    cli: Cli, trained: Path, tmp_path: Path, tiny: Options
) -> None:
    part = ("--train-images", "40", "--seed", "1")
    written = cli("eval", "first", "--part", "train", *part, "--logits", "logits.npz")
    assert written.returncode == 0, written.stderr
    assert "train part, 40 images" in written.stdout
    options = ("train", "--epochs", "1", "--teacher", "logits.npz", *tiny)
    student = cli(*options, *part, "--out", "student")
    assert student.returncode == 0, student.stderr
    other = cli(*options, "--train-images", "40", "--seed", "2", "--out", "other")
    assert (other.returncode, len(other.stderr.splitlines())) == (2, 1)
    assert "made for other images" in other.stderr


@pytest.mark.slow
def test_logits_of_a_teacher_that_takes_larger_images(cli: Cli, tmp_path: Path, tiny: Options) -> None:
    assert cli("train", "--image-size", "16", "--epochs", "1", "--out", "large", *tiny).returncode == 0
    straight = cli("train", "--teacher", "large", "--epochs", "1", "--out", "student", *tiny)
    assert "the teacher takes images (C, Y, X) of (1, 16, 16), the student sees (1, 8, 8)" in straight.stderr
    write = ("eval", "large", "--part", "train", "--logits", "logits.npz")
    learn = ("train", "--teacher", "logits.npz", "--epochs", "1", "--out", "student", *tiny)
    assert cli(*write).returncode == 0
    assert "made for other images" in cli(*learn).stderr  # they are marked with those of 16x16
    assert cli(*write, "--image-size", "8").returncode == 0
    assert cli(*learn).returncode == 0


@pytest.mark.slow
def test_files_that_do_not_say_how_many_heads_they_have(cli: Cli, tmp_path: Path, tiny: Options) -> None:
    sizes = {"image_size": 8, "patch_size": 2, "in_chans": 1, "num_classes": 10, "embed_dim": 24, "num_heads": 3}
    params = vit.init(vit_example(sizes), np.random.default_rng(0))
    safetensors.write(tmp_path / "foreign.safetensors", tree.flatten(params))
    init = ("train", "--init", "foreign.safetensors", "--epochs", "1", "--out", "tuned")
    assert "give num_heads" in cli(*init).stderr
    assert cli(*init, "--num-heads", "3").returncode == 0
    assert own.load(tmp_path / "tuned" / "checkpoint.safetensors").config.num_heads == 3
    few = ("probe", "foreign.safetensors", "--train-images", "50", "--test-images", "20", "--json")
    assert "give num_heads" in cli(*few).stderr
    assert json.loads(cli(*few, "--heads", "3").stdout)["features"] == 24
    learn = ("train", "--epochs", "1", "--out", "student", *tiny, "--teacher")
    refused = cli(*learn, "foreign.safetensors")
    assert len(refused.stderr.splitlines()) == 1
    assert "numpy-vit convert foreign.safetensors NAME.safetensors --num-heads N" in refused.stderr
    assert cli("convert", "foreign.safetensors", "told.safetensors", "--num-heads", "3").returncode == 0
    assert cli(*learn, "told.safetensors").returncode == 0


def test_a_run_goes_on_with_its_own_teacher_only(cli: Cli, trained: Path, tmp_path: Path, tiny: Options) -> None:
    np.savez(tmp_path / "logits.npz", logits=np.zeros((1438, 10), np.float32))
    assert cli("train", "--teacher", "logits.npz", "--epochs", "1", "--out", "student", *tiny).returncode == 0
    about = json.loads((tmp_path / "student" / "config.json").read_text())
    assert about["teacher"] == str(tmp_path / "logits.npz")
    assert "is finished" in cli("train", "--resume", "student").stdout
    (tmp_path / "elsewhere").mkdir()
    assert "is finished" in cli("train", "--resume", "../student", cwd=tmp_path / "elsewhere").stdout
    np.savez(tmp_path / "logits.npz", logits=np.ones((1438, 10), np.float32))
    resumed = cli("train", "--resume", "student")
    assert (resumed.returncode, len(resumed.stderr.splitlines())) == (2, 1)
    assert "is not the teacher that student began with" in resumed.stderr
    del about["teacher_checksum"]  # as in runs of earlier versions
    (tmp_path / "student" / "config.json").write_text(json.dumps(about))
    assert "is finished" in cli("train", "--resume", "student").stdout


def test_a_subset_is_taken_and_stays_through_a_resume(cli: Cli, tmp_path: Path, tiny: Options) -> None:
    result = cli("train", "--train-images", "100", "--test-images", "50", "--epochs", "1", "--out", "few", *tiny)
    assert "100 training and 50 test images" in result.stdout
    about = json.loads((tmp_path / "few" / "config.json").read_text())
    assert (about["data"]["train_images"], about["data"]["test_images"]) == (100, 50)
    assert "is finished" in cli("train", "--resume", "few").stdout


def test_deits_augmentation_runs(cli: Cli, tiny: Options) -> None:
    options = ("--mixup", "0.8", "--cutmix", "1", "--repeats", "2", "--auto-augment", "3a", "--erase", "0.25",
               "--crop-scale", "0.3", "--color-jitter", "0.3", "--patch-drop", "0.5")  # fmt: skip
    result = cli("train", "--data", "shapes:60", "--epochs", "2", *options, *tiny)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""


def test_a_recipe_is_printed_whole_and_every_field_can_be_given(cli: Cli) -> None:
    result = cli("train", "--recipe", "deit", "--print-recipe", "--epochs", "7", "--mixup", "0.3", "--depth", "2")
    about = json.loads(result.stdout)
    assert about["model"] == "vit_mini_patch4_32"
    assert (about["recipe"]["epochs"], about["recipe"]["mixup"], about["recipe"]["cutmix"]) == (7, 0.3, 1.0)
    assert about["fields"] == {"drop_path_rate": 0.1, "depth": 2}
    assert about["recipe"]["warmup_epochs"] == pytest.approx(5 * 7 / 100)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--recipe", "nothing"), "no recipe is called 'nothing': choose one of digits"),
        (("--freeze", "nothing"), "nothing to freeze is called 'nothing'"),
        (("--init", "nothing"), "nothing"),
        (("--distilled",), "name it with --teacher"),
        (("--distill-alpha", "0.9"), "--distill-alpha is about a teacher"),
        (("--init", "x", "--model", "vit_tiny_patch16_224"), "leave out --model"),
        (("--init", "x", "--overfit", "8"), "leave out --init"),
        (("--teacher", "x", "--overfit", "8"), "leave out --teacher"),
        (("--recipe", "finetune"), "name it with --init"),
        (("--train-images", "5000"), "has 1,438 images, not 5,000"),
        (("--auto-augment", "rand-x9"), "rand-x9"),
        (("--mixup", "-1"), "mixup has to be 0 or positive"),
    ],
)
def test_what_cannot_be_meant_is_one_line(cli: Cli, tmp_path: Path, options: Options, message: str) -> None:
    result = cli("train", *options)
    assert result.returncode == 2
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "runs").exists()
