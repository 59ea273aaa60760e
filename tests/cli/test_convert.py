"""numpy-vit convert, as a user runs it."""

from __future__ import annotations

import json

import numpy as np
from PIL import Image

from numpy_vit import tree
from numpy_vit.checkpoints import read_tensors, safetensors
from numpy_vit.checks.model_examples import vit_example
from numpy_vit.models import vit, vit_config


def stored(path):
    config = vit_example({"image_size": 16, "patch_size": 4, "in_chans": 3, "embed_dim": 12, "num_heads": 3})
    flat = tree.flatten(vit.init(config, np.random.default_rng(0)))
    safetensors.write(path, flat)
    return flat


def test_to_torchvision_as_a_torch_file(cli, tmp_path):
    flat = stored(tmp_path / "in")
    done = cli("convert", "in", "out.pt", "--to", "torchvision", "--num-heads", "3")
    assert done.returncode == 0, done.stderr
    assert "ASSUMED norm_eps" in done.stdout
    assert "out.pt: layout torchvision; its model needs 3 heads, eps 1e-06, activation gelu" in done.stdout
    found = read_tensors(tmp_path / "out.pt")
    np.testing.assert_array_equal(
        found["encoder.layers.encoder_layer_1.self_attention.in_proj_weight"], flat["blocks.1.attn.qkv.weight"]
    )


def test_another_image_size_in_json(cli, tmp_path):
    stored(tmp_path / "in")
    done = cli("convert", "in", "out.safetensors", "--num-heads", "3", "--image-size", "24", "20", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["layout"] == "timm"
    assert report["resized"]
    assert read_tensors(tmp_path / "out.safetensors")["pos_embed"].shape == (1, 31, 12)


def test_a_map(cli, tmp_path):
    flat = stored(tmp_path / "in")
    safetensors.write(tmp_path / "theirs", {f"my.{key}": array for key, array in flat.items()})
    lines = {f"my.{key} -> {key}".replace(".0.", ".{i}.").replace(".1.", ".{i}.") for key in flat}
    (tmp_path / "map").write_text("\n".join(sorted(lines)))
    done = cli("convert", "theirs", "out.safetensors", "--map", "map", "--num-heads", "3", "--norm-eps", "1e-6")
    assert done.returncode == 0, done.stderr
    found = read_tensors(tmp_path / "out.safetensors")
    assert all((found[key] == array).all() for key, array in flat.items())


def test_what_is_wrong_is_one_line_and_nothing_is_written(cli, tmp_path):
    stored(tmp_path / "in")
    for arguments, message in [
        (("none", "out.pt"), "cannot be read"),
        (("in", "out.pt"), "give num_heads"),
        (("in", "out.pt", "--num-heads", "5"), "does not divide"),
        (("in", "out.h5"), "suffix"),
        (("in", "out.pt", "--num-heads", "3", "--image-size", "17", "16"), "not a whole number"),
        (("in", "out.pt", "--num-heads", "3", "--resizing", "cubic"), "'cubic' is unknown"),
        (("in", "out.pt", "--map", "none"), "cannot be read as a map"),
    ]:
        done = cli("convert", *arguments)
        assert done.returncode == 2, arguments
        assert message in done.stderr
        assert done.stderr.count("\n") == 1
        assert done.stderr.startswith("numpy-vit: ")
    assert {path.name for path in tmp_path.iterdir()} == {"in"}


def test_a_converted_file_keeps_the_preprocessing_of_its_family(cli, tmp_path):
    """The weights' training decides how pictures are prepared, not the names that the tensors have now."""
    config = vit_config("vit_tiny_patch16_224", depth=1, num_classes=3)
    tensors = tree.flatten(vit.init(config, np.random.default_rng(0)))
    safetensors.write(tmp_path / "timm.safetensors", tensors, {})
    Image.new("RGB", (40, 30), (200, 30, 90)).save(tmp_path / "red.png")
    for source, target in (("timm", "torchvision"), ("torchvision", "hf")):
        result = cli("convert", f"{source}.safetensors", f"{target}.safetensors", "--to", target)
        assert result.returncode == 0, result.stderr
    before, after = (
        json.loads(cli("predict", "red.png", "--checkpoint", f"{name}.safetensors", "--json").stdout)
        for name in ("timm", "hf")
    )
    assert before["preprocessing"]["mean"] == after["preprocessing"]["mean"] == [0.5, 0.5, 0.5]
    assert "timm models, from the checkpoint's metadata" in str(after)
