"""numpy-vit attention, saliency, positions, filters: files, shares and sums, and what cannot be looked at."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

from numpy_vit import tree
from numpy_vit.checkpoints import own, safetensors
from numpy_vit.cli.main import main
from numpy_vit.data import Preprocessing, load, shapes
from numpy_vit.models import vit

SIZES = {"image_size": 32, "patch_size": 8, "num_classes": 3, "embed_dim": 16, "depth": 2, "num_heads": 2}


def save(path, names=("cat", "dog", "doge"), broken=None, **fields):
    """A model of random weights; `broken` names a tensor with one entry that is not a number."""
    config = vit.Config(**{**SIZES, **fields})
    rng = np.random.default_rng(0)
    params = tree.map(
        lambda leaf: (leaf + 0.2 * rng.standard_normal(leaf.shape)).astype(np.float32), vit.init(config, rng)
    )
    if broken:
        tree.flatten(params)[broken].flat[-1] = np.nan
    channels = config.in_chans
    preprocessing = Preprocessing((32, 32), channels, (0.5,) * channels, (0.25,) * channels)
    own.save(path, config, params, {"preprocessing": preprocessing.to_json(), "class_names": list(names)})
    return config, params


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.safetensors"
    save(path)
    return path


def answer(capsys, *arguments):
    status = main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return status, out, err


def test_attention_writes_pictures_and_the_numbers_behind_them(tmp_path, model, photo, capsys):
    status, out, err = answer(capsys, "attention", photo, "--checkpoint", model, "--out", tmp_path / "a" / "b")
    assert (status, err) == (0, "")
    written = sorted(path.name for path in (tmp_path / "a" / "b").iterdir())
    assert written == ["attention.npz", "attention.png", "attention_raw.png", "rollout.png"]
    assert all(f"b/{name}" in out for name in written)
    with np.load(tmp_path / "a" / "b" / "attention.npz") as arrays:
        weights, maps, rollout, image = (arrays[key] for key in ("weights", "maps", "rollout", "image"))
    assert weights.shape == (2, 2, 17, 17)
    row = weights[..., 0, 1:]
    np.testing.assert_allclose(maps.reshape(2, 2, 16), row / row.sum(axis=-1, keepdims=True), rtol=1e-5)
    assert rollout.sum() == pytest.approx(1, rel=1e-5)
    assert (image.shape, image.dtype) == ((32, 32, 3), np.uint8)


def test_the_share_on_a_mask(tmp_path, model, photo, capsys):
    mask = np.zeros((40, 50), np.uint8)
    mask[:, 25:] = 255  # the right half, in the model's centre crop too
    Image.fromarray(mask).save(tmp_path / "mask.png")
    options = ["--checkpoint", model, "--out", tmp_path / "out", "--mask", tmp_path / "mask.png"]
    status, out, _ = answer(capsys, "attention", photo, *options, "--json")
    found = json.loads(out)
    assert (status, found["images"], found["shown"]) == (0, 1, "the class token's attention")
    assert found["area"] == pytest.approx(0.5, abs=0.02)
    with np.load(tmp_path / "out" / "attention.npz") as arrays:
        maps, rollout = arrays["maps"], arrays["rollout"]
    right = maps[..., 2:].sum(axis=(-1, -2))
    for block in range(2):
        np.testing.assert_allclose(found["blocks"][block]["heads"], right[block], atol=0.02)
    assert found["rollout"] == pytest.approx(rollout[:, 2:].sum(), abs=0.02)
    assert found["rollout_error"] is None
    text = answer(capsys, "attention", photo, *options)[1]
    assert f"{photo}: the class token's attention\n" in text
    share, area = found["rollout"], found["area"]
    assert f"rollout  {share:.1%}, {share / area:.2f} times the area ({share - area:+.1%})\n" in text


def test_shapes_bring_their_masks_and_an_untrained_model_knows_nothing(tmp_path, model, capsys):
    options = ["--checkpoint", model, "--out", tmp_path / "out", "--json"]
    status, out, _ = answer(capsys, "attention", "shapes:40", *options, "--untrained")
    found = json.loads(out)
    assert (status, found["images"], found["untrained"]) == (0, 40, True)
    assert 0.05 < found["area"] < 0.25
    for block in found["blocks"]:
        assert block["share"] == pytest.approx(found["area"], abs=max(0.01, 4 * block["error"]))
    assert (tmp_path / "out" / "shapes.png").is_file()
    trained = json.loads(answer(capsys, "attention", "shapes:4", *options)[1])
    assert trained["blocks"] != found["blocks"]


def test_shapes_are_not_cropped_away_from_their_masks(tmp_path, model, capsys):
    """timm's usual preprocessing enlarges a picture and cuts its centre out."""
    options = ["--checkpoint", model, "--out", tmp_path / "out", "--preprocessing", "timm"]
    assert answer(capsys, "attention", "shapes:1", *options)[0] == 0
    image, _, _ = shapes.make(shapes.TEST, (32, 32))
    with np.load(tmp_path / "out" / "attention.npz") as arrays:
        np.testing.assert_array_equal(arrays["image"], image.transpose(1, 2, 0))


def test_saliency_sums_to_the_difference_of_the_logits(tmp_path, model, photo, capsys):
    options = ["--checkpoint", model, "--out", tmp_path / "out"]
    status, out, err = answer(capsys, "saliency", photo, *options, "--json", "--steps", "32")
    found = json.loads(out)
    assert (status, err) == (0, "")
    assert found["name"] == found["predicted"] == ["cat", "dog", "doge"][found["class"]]
    difference = found["logit"] - found["baseline_logit"]
    assert found["contributions"] == pytest.approx(difference, rel=0.01)
    assert found["residual"] == pytest.approx(found["contributions"] - difference, abs=1e-6)
    with np.load(tmp_path / "out" / "saliency.npz") as arrays:
        assert arrays["integrated_gradients"].sum() == pytest.approx(found["contributions"], rel=1e-5)
        assert arrays["gradient_times_input"].shape == (3, 32, 32)
        assert arrays["weighted_rollout"].sum() == pytest.approx(1, rel=1e-5)


@pytest.mark.parametrize(
    ("names", "wanted", "chosen"),
    [
        (("cat", "dog", "doge"), "Dog", "dog, class 1"),
        (("cat", "dog", "doge"), "doge", "doge, class 2"),
        (("cat", "dog", "doge"), "1", "dog, class 1"),
        (("1", "2", "3"), "1", "1, class 0"),  # a name before a number
        (("1", "2", "3"), "0", "1, class 0"),
        (("A", "a", "b"), "a", "a, class 1"),
        (("a", "a", "b"), "1", "a, class 1"),  # two of one name: by number alone
    ],
)
def test_classes_by_name_and_number(tmp_path, photo, capsys, names, wanted, chosen):
    save(tmp_path / "m.safetensors", names)
    options = ["--checkpoint", tmp_path / "m.safetensors", "--out", tmp_path / "out", "--steps", "1"]
    status, text, _ = answer(capsys, "saliency", photo, *options, "--class", wanted)
    assert (status, text.count("residual")) == (0, 1)
    assert text.startswith(f"{photo}: {chosen}")


def test_attention_pooling_is_said_not_to_be_shown(tmp_path, photo, capsys):
    for pool, words in (("avg", ""), ("map", ", without the pool's own")):
        save(tmp_path / "m.safetensors", global_pool=pool)
        options = ["--checkpoint", tmp_path / "m.safetensors", "--out", tmp_path / "out"]
        status, text, _ = answer(capsys, "attention", photo, *options)
        assert status == 0
        assert text.splitlines()[0] == f"{photo}: the attention that patches receive from each other{words}"
        assert answer(capsys, "saliency", photo, *options, "--steps", "1")[0] == 0


def test_a_test_image_of_the_runs_data_is_the_pixels_of_the_data_set(tmp_path, capsys):
    digits = load("digits")
    config = vit.Config(**{**SIZES, "image_size": 8, "patch_size": 2, "in_chans": 1, "num_classes": 10})
    about = {"preprocessing": Preprocessing.of(digits.train).to_json(), "data": "digits"}
    own.save(tmp_path / "m.safetensors", config, vit.init(config, np.random.default_rng(0)), about)
    options = ["--checkpoint", tmp_path / "m.safetensors", "--out", tmp_path / "out"]
    assert answer(capsys, "attention", "test:7", *options)[0] == 0
    with np.load(tmp_path / "out" / "attention.npz") as arrays:
        np.testing.assert_array_equal(arrays["image"][..., 0], digits.test.images[7, 0])
    assert answer(capsys, "saliency", "test:7", *options)[0] == 0
    mask = np.zeros((8, 8), np.uint8)
    mask[:, :2] = 255  # the left column of patches; a crop as of DeiT would enlarge it
    Image.fromarray(mask).save(tmp_path / "mask.png")
    masked = ["--mask", tmp_path / "mask.png", "--preprocessing", "deit", "--json"]
    found = json.loads(answer(capsys, "attention", "test:7", *options, *masked)[1])
    with np.load(tmp_path / "out" / "attention.npz") as arrays:
        np.testing.assert_allclose(found["blocks"][0]["heads"], arrays["maps"][0, ..., 0].sum(axis=-1), rtol=1e-5)
    assert found["area"] == 0.25
    Image.new("L", (9, 8)).save(tmp_path / "mask.png")
    status, _, err = answer(capsys, "attention", "test:7", *options, *masked)
    assert (status, err.count("\n")) == (2, 1) and "9x8 pixels, test:7 8x8" in err
    status, _, err = answer(capsys, "attention", "test:359", *options)
    assert (status, err.count("\n")) == (2, 1) and "test:0 to test:358" in err


@pytest.mark.parametrize(
    ("name", "message"),
    [("3", "0 to 2"), ("do", "1 dog, 2 doge"), ("bird", "no such class")],
)
def test_classes_that_cannot_be_meant(tmp_path, model, photo, capsys, name, message):
    status, _, err = answer(
        capsys, "saliency", photo, "--checkpoint", model, "--out", tmp_path / "out", "--class", name
    )
    assert (status, err.count("\n")) == (2, 1)
    assert message in err


def test_positions_and_filters(tmp_path, model, capsys):
    status, out, _ = answer(capsys, "positions", model, "--out", tmp_path / "p.png")
    assert status == 0 and "learned positions of 4x4 patches" in out
    status, out, _ = answer(capsys, "filters", model, "--count", "5", "--out", tmp_path / "f.png")
    assert status == 0 and out.startswith("5 principal components of 16 filters of 8x8 pixels")
    for name in ("p.png", "f.png"):
        with Image.open(tmp_path / name) as picture:
            assert picture.format == "PNG"


def test_heads_do_not_matter_for_positions_and_filters(tmp_path, photo, capsys):
    """timm's names, a width that is no multiple of 64, and nothing else: nobody can tell how many heads there are."""
    _, params = save(tmp_path / "own.safetensors")
    bare = tmp_path / "bare.safetensors"
    safetensors.write(bare, tree.flatten(params))
    for command, name in (("positions", "p.png"), ("filters", "f.png")):
        outputs = []
        for file in (bare, tmp_path / "own.safetensors"):
            status, out, err = answer(capsys, command, file, "--out", tmp_path / name)
            assert (status, err) == (0, "")
            outputs.append(out)
        assert outputs[0] == outputs[1]
    status, _, err = answer(capsys, "attention", photo, "--checkpoint", bare, "--out", tmp_path / "out")
    assert status == 2 and "give num_heads" in err  # here they matter
    (tmp_path / "text.safetensors").write_text("not a checkpoint")
    status, _, err = answer(capsys, "filters", tmp_path / "text.safetensors")
    assert (status, err.count("\n")) == (2, 1) and "num_heads" not in err


@pytest.mark.parametrize(
    ("broken", "commands"),
    [
        ("blocks.0.attn.qkv.weight", ["attention", "saliency"]),
        ("head.weight", ["saliency"]),
        ("pos_embed", ["positions", "attention", "saliency"]),
        ("patch_embed.proj.weight", ["filters", "attention"]),
    ],
)
def test_numbers_that_are_not_finite_are_refused(tmp_path, photo, capsys, broken, commands):
    path = tmp_path / "m.safetensors"
    save(path, broken=broken)
    for command in commands:
        looking = [photo, "--checkpoint", path] if command in ("attention", "saliency") else [path]
        for extra in ([], ["--json"])[: 2 if len(looking) > 1 else 1]:
            status, out, err = answer(capsys, command, *looking, "--out", tmp_path / "out", *extra)
            assert (status, out, err.count("\n")) == (2, "", 1)
            assert "not finite numbers: look at the checkpoint with numpy-vit inspect" in err


def test_what_cannot_be_looked_at_is_one_line(tmp_path, model, photo, capsys):
    Image.new("L", (9, 9)).save(tmp_path / "small.png")
    save(tmp_path / "none.safetensors", pos_embed="none")
    save(tmp_path / "headless.safetensors", num_classes=0)
    save(tmp_path / "small.safetensors", image_size=4, patch_size=1)
    out = ["--out", tmp_path / "out"]
    cases = [
        (["attention", photo, "--checkpoint", model, *out, "--mask", tmp_path / "small.png"], "9x9 pixels"),
        (["attention", "shapes", "--checkpoint", model, *out, "--mask", photo], "leave --mask out"),
        (["attention", tmp_path / "no.png", "--checkpoint", model, *out], "no such image file"),
        (["attention", photo, "--checkpoint", tmp_path / "no", *out], "no"),
        (["attention", "test:1", "--checkpoint", model, *out], "name an image file"),
        (["attention", photo, "--checkpoint", model, "--out", photo], "photo.png"),
        (["saliency", photo, "--checkpoint", tmp_path / "headless.safetensors", *out], "no classification head"),
        (["attention", "shapes:2", "--checkpoint", tmp_path / "small.safetensors", *out], "at least 8 pixels"),
        (["saliency", photo, "--checkpoint", model, *out, "--steps", "100000"], "take 1024 at most"),
        (["positions", tmp_path / "none.safetensors"], "no position table"),
        (["filters", model, "--out", tmp_path / "nowhere" / "f.png"], "no folder"),
    ]
    for arguments, message in cases:
        status, _, err = answer(capsys, *arguments)
        assert (status, err.count("\n")) == (2, 1), (arguments, err)
        assert message in err and "Traceback" not in err
