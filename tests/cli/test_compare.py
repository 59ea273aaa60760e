"""numpy-vit compare as a user runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from numpy_vit.checkpoints import safetensors
from numpy_vit.checks.opening import open_port
from numpy_vit.checks.reference import Reference, write_reference
from numpy_vit.data import published

REPOSITORY = Path(__file__).resolve().parents[2]
FOLDER = REPOSITORY / "tests" / "checks" / "references"
MODEL = str(FOLDER / "model.safetensors")
HEADS = ("--set", "num_heads=2")


def test_the_same(cli):
    done = cli("compare", MODEL, "--reference", str(FOLDER / "right.npz"), *HEADS)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("SAME: 16 outputs and 21 gradients differ by no more than float32 rounding explains")
    assert max(map(len, done.stdout.splitlines()[2:])) <= 120


def test_different_with_the_causes_first(cli):
    done = cli("compare", MODEL, "--reference", str(FOLDER / "eps_and_tanh.safetensors"), *HEADS)
    assert (done.returncode, done.stderr) == (1, "")
    verdict, first, second, *_ = done.stdout.splitlines()
    assert verdict == "DIFFERENT: the first tensor that differs is blocks.0.norm1"
    assert first.startswith("1. With eps=1e-05 the difference at blocks.0.norm1 falls from 2.9e-04 to ")
    assert second.startswith("2. With act='gelu_tanh' the difference at blocks.0.mlp.act falls from ")
    assert sum("<-- FIRST" in line for line in done.stdout.splitlines()) == 1


def test_an_override_settles_what_the_file_does_not_say(cli):
    options = ("--set", "norm_eps=1e-5", "--set", "act=gelu_tanh")
    done = cli("compare", MODEL, "--reference", str(FOLDER / "eps_and_tanh.safetensors"), *HEADS, *options)
    assert done.returncode == 0


def test_json(cli):
    done = cli("compare", MODEL, "--reference", str(FOLDER / "heads.safetensors"), *HEADS, "--json")
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert (found["schema"], found["same"]) == ("numpy_vit.compare/1", False)
    assert [(cause["tensor"], cause["name"]) for cause in found["causes"]] == [("blocks.0.attn.proj", "4 heads")]
    assert found["tensors"][0]["name"] == "patch_embed"
    assert found["checkpoint"] == MODEL


def test_two_checkpoints(cli, tmp_path):
    tensors, _ = safetensors.read(MODEL)
    safetensors.write(tmp_path / "copy.safetensors", tensors)
    done = cli("compare", "--weights", MODEL, "copy.safetensors", *HEADS)
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "SAME: 20 tensors are equal bit for bit")
    tensors["pos_embed"] = np.roll(tensors["pos_embed"], 1, axis=1)
    safetensors.write(tmp_path / "moved.safetensors", tensors)
    done = cli("compare", "--weights", MODEL, "moved.safetensors", *HEADS, "--json")
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert found["causes"] == [
        "With the class token's position row put last, pos_embed of the first checkpoint equal the second's."
    ]
    assert [row["name"] for row in found["tensors"] if not row["same"]] == ["pos_embed"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((MODEL, "--reference", MODEL, *HEADS), "is no reference file"),
        ((MODEL, "--reference", "nowhere.npz", *HEADS), "nowhere.npz"),
        (("--reference", str(FOLDER / "right.npz")), "needs a CHECKPOINT"),
        ((MODEL, "--reference", str(FOLDER / "right.npz"), "--set", "heads"), "write FIELD=VALUE"),
        ((MODEL, "--reference", str(FOLDER / "right.npz"), "--set", "heads=2"), "heads"),
        ((MODEL, "--reference", str(FOLDER / "right.npz"), "--set", "num_heads=3"), "num_heads 3 does not divide"),
        ((MODEL, "--weights", MODEL, MODEL), "leave out the first argument"),
        ((MODEL,), "one of the arguments --reference --torch --weights is required"),
        (("--torch", "nowhere"), "names no model"),
        (("--torch", "no_such_module:make"), "not installed"),
    ],
)
def test_what_cannot_be_compared_is_one_line_and_status_2(cli, arguments, message):
    done = cli("compare", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_how_the_pictures_were_resized_is_told_from_the_raw_ones(cli, tmp_path):
    raw = np.random.default_rng(0).integers(0, 256, (2, 15, 17, 3), np.uint8)
    right = published.named("timm", (6, 6))
    port = open_port(MODEL, (6, 6), num_heads=2)
    for resample, status in (("bicubic", 0), ("bilinear", 1)):
        way = replace(right, resample=resample)
        images = np.concatenate([way.apply(Image.fromarray(picture)) for picture in raw])
        outputs, _ = replace(port, images=images).outputs(np.float32)
        write_reference(tmp_path / f"{resample}.npz", Reference(images, outputs, raw=raw))
        done = cli("compare", MODEL, "--reference", f"{resample}.npz", *HEADS, "--json")
        assert done.returncode == status, done.stderr
        causes = json.loads(done.stdout)["causes"]
        assert [(cause["tensor"], cause["name"]) for cause in causes] == [("images", "resizing")] * status


def test_help_has_an_example(cli):
    assert "numpy-vit compare model.safetensors --reference" in cli("compare", "--help").stdout


FACTORY = """
import torch
from timm.models.vision_transformer import VisionTransformer

def make(**options):
    torch.manual_seed(0)
    sizes = {"img_size": 16, "patch_size": 4, "embed_dim": 24, "depth": 2, "num_heads": 3, "num_classes": 7}
    model = VisionTransformer(**{**sizes, **options})
    with torch.no_grad():
        for leaf in model.parameters():
            leaf.add_(0.1 * torch.randn_like(leaf))
    return model

def tanh():
    return make(act_layer=lambda: torch.nn.GELU("tanh"))
"""


def _run(tmp_path, *arguments):
    paths = f"import sys; sys.path[:0] = [{str(REPOSITORY)!r}, {str(tmp_path)!r}]; sys.argv[1:] = {list(arguments)!r}; "
    return lambda program: subprocess.run(
        [sys.executable, "-c", paths + program], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.framework
def test_a_live_model_and_the_file_dumped_from_it(tmp_path):
    pytest.importorskip("timm")
    (tmp_path / "factory.py").write_text(FACTORY)
    main = "from numpy_vit.cli.main import main; sys.exit(main())"
    fields = ("--set", "num_heads=3")
    done = _run(tmp_path, "compare", "--torch", "factory:make", *fields)(main)
    assert (done.returncode, done.stdout[:6]) == (0, "SAME: "), done.stderr
    done = _run(tmp_path, "compare", "--torch", "factory:tanh", *fields)(main)
    assert done.returncode == 1
    assert "1. With act='gelu_tanh'" in done.stdout
    script = f"import runpy; runpy.run_path({str(REPOSITORY / 'scripts' / 'dump_reference.py')!r}, run_name='__main__')"
    options = ("--image-shape", "3", "16", "16", "--dtype", "bfloat16", "--out", "ref.safetensors")
    done = _run(tmp_path, "factory:make", *options)(script)
    assert done.returncode == 0, done.stderr
    state = "import torch, factory; torch.save(factory.make().state_dict(), 'model.pt')"
    assert _run(tmp_path)(state).returncode == 0
    done = _run(tmp_path, "compare", "model.pt", "--reference", "ref.safetensors", *fields)(main)
    assert done.returncode == 0, done.stderr + done.stdout
    assert "bfloat16 rounding explains" in done.stdout


@pytest.mark.framework
def test_a_named_model_gets_the_checkpoint_s_weights(tmp_path):
    timm, torch = pytest.importorskip("timm"), pytest.importorskip("torch")
    model = timm.create_model("vit_tiny_patch16_224", img_size=32, num_classes=5)
    torch.save(model.state_dict(), tmp_path / "tiny.pt")
    main = "from numpy_vit.cli.main import main; sys.exit(main())"
    done = _run(tmp_path, "compare", "tiny.pt", "--torch", "timm:vit_tiny_patch16_224", "--dtype", "float64")(main)
    assert (done.returncode, done.stdout[:6]) == (0, "SAME: "), done.stderr + done.stdout
