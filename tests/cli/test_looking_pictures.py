"""numpy-vit attention and saliency: every tile of their pictures is the map of the number that it stands for."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from PIL import Image

from numpy_vit import tree
from numpy_vit.checkpoints import own
from numpy_vit.cli.main import main
from numpy_vit.data import Preprocessing, shapes
from numpy_vit.models import vit
from numpy_vit.views import attention_maps, heat_maps, saliency_picture

CONFIG = vit.Config(image_size=32, patch_size=8, num_classes=3, embed_dim=16, depth=2, num_heads=2)


@pytest.fixture
def model(tmp_path):
    """A file and its parameters, random ones that look at other patches in every block and head."""
    rng = np.random.default_rng(0)
    params = tree.map(
        lambda leaf: (leaf + 0.2 * rng.standard_normal(leaf.shape)).astype(np.float32), vit.init(CONFIG, rng)
    )
    about = {"preprocessing": Preprocessing((32, 32), 3, (0.5,) * 3, (0.25,) * 3).to_json()}
    own.save(tmp_path / "model.safetensors", CONFIG, params, about)
    return tmp_path / "model.safetensors", params


def tiles(path, side, size=32):
    """The tiles of a picture that are `side` pixels wide and high, row by row, each with its own 32x32 pixels again."""
    with Image.open(path) as opened:
        pixels = np.asarray(opened.convert("RGB"))
    found = []
    for top, bottom in runs((pixels != 255).any(axis=(1, 2)), side):
        columns = runs((pixels[top:bottom] != 255).any(axis=(0, 2)), side)
        step = side // size
        found.append([pixels[top + 1 : bottom : step, left + 1 : right : step] for left, right in columns])
    return found


def runs(there, length):
    """Where runs of true of one length begin and end."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], there, [False]]).astype(int))).reshape(-1, 2)
    return [run for run in edges if np.diff(run) == length]


def assert_same_picture(found, expected):
    """The same but for a colour's rounding."""
    assert abs(found.astype(int) - expected).max() <= 1


def run(*arguments):
    assert main([str(argument) for argument in arguments]) == 0


def test_the_pictures_of_attention_show_the_numbers(tmp_path, model, photo):
    folder = tmp_path / "out"
    run("attention", photo, "--checkpoint", model[0], "--out", folder)
    with np.load(folder / "attention.npz") as arrays:
        maps, rollout, image = (arrays[key] for key in ("maps", "rollout", "image"))
    over, alone = tiles(folder / "attention.png", 96), tiles(folder / "attention_raw.png", 96)
    assert [len(row) for row in over + alone] == [3, 3, 3, 3]  # two heads, and their mean
    assert len({int(heat.argmax()) for block in maps for heat in block}) > 1  # or any order would do
    for block in range(2):
        for head, heat in enumerate([*maps[block], maps[block].mean(axis=0)]):
            assert_same_picture(over[block][head], heat_maps.overlay(heat, image))
            assert_same_picture(alone[block][head], heat_maps.raw(heat, (32, 32)))
    ((shown, laid_over, raw),) = tiles(folder / "rollout.png", 256)
    np.testing.assert_array_equal(shown, image)
    assert_same_picture(laid_over, heat_maps.overlay(rollout, image))
    assert_same_picture(raw, heat_maps.raw(rollout, (32, 32)))
    assert abs(rollout - rollout.T).max() > 0.1 * rollout.max()  # a transposed one is another picture


def test_each_of_several_shapes_has_its_own_mask_and_picture(tmp_path, model, capsys):
    path, params = model
    arguments = ["attention", "shapes:6", "--checkpoint", path, "--out", tmp_path / "out"]
    run(*arguments, "--json")
    found = json.loads(capsys.readouterr().out)
    made = [shapes.make(shapes.TEST + i, 32) for i in range(6)]
    images, masks = np.stack([image for image, _, _ in made]), np.stack([mask for _, _, mask in made])
    pixels = ((images / 255 - 0.5) / 0.25).astype(np.float32)
    _, cache = vit.forward(params, pixels, CONFIG, record={})
    rows = np.stack(vit.attention_weights(cache), axis=1)[..., 0, 1:]
    maps = (rows / rows.sum(axis=-1, keepdims=True)).reshape(6, 2, 2, 4, 4)
    by_pixel = np.kron(maps, np.ones((8, 8))) / 64

    def shares(masks):
        return np.einsum("blhyx,byx->blh", by_pixel, masks)  # (B, L, H)

    heads = np.array([block["heads"] for block in found["blocks"]])
    np.testing.assert_allclose(heads, shares(masks).mean(axis=0), atol=1e-5)
    area = masks.mean(axis=(1, 2))
    assert found["area"] == pytest.approx(area.mean())
    for wrong in (masks[::-1], masks.swapaxes(1, 2)):  # what this test is to notice
        assert abs(shares(wrong).mean(axis=0) - heads).max() > 1e-3
    error = (shares(masks).mean(axis=2)[:, 1] - area).std(ddof=1) / 6**0.5  # of the difference, not of the share
    assert found["blocks"][1]["error"] == pytest.approx(error, rel=1e-3)
    run(*arguments)
    text = capsys.readouterr().out
    assert re.search(rf"block 1  .* times the area \([+-][\d.]+% ± {error:.1%}\)   heads", text)

    weights = attention_maps.weights(vit, params, pixels, CONFIG)
    below = [maps[:, -1].mean(axis=1), attention_maps.rollout(weights, CONFIG)]
    first, *others = tiles(tmp_path / "out" / "shapes.png", 96)
    for i, image in enumerate(images.transpose(0, 2, 3, 1)):
        np.testing.assert_array_equal(first[i], image)
        for row, heats in zip(others, below, strict=True):
            assert_same_picture(row[i], heat_maps.overlay(heats[i], image))


def test_the_picture_of_saliency_shows_the_numbers(tmp_path, model, photo):
    run("saliency", photo, "--checkpoint", model[0], "--out", tmp_path / "out", "--steps", "4")
    with np.load(tmp_path / "out" / "saliency.npz") as arrays:
        product, contributions, rollout, seen = (
            arrays[key] for key in ("gradient_times_input", "integrated_gradients", "weighted_rollout", "image")
        )
    ((shown, *signed, heat),) = tiles(tmp_path / "out" / "saliency.png", 224)
    np.testing.assert_array_equal(shown, seen)
    assert np.ptp(rollout) > 0.01 and abs(rollout - rollout[::-1]).max() > 0.01  # neither even nor symmetrical
    assert_same_picture(heat, heat_maps.overlay(rollout, seen))
    by_patch = saliency_picture.over_patches(contributions, (4, 4))
    for tile, values in zip(signed, (product.sum(axis=0), contributions.sum(axis=0), by_patch), strict=True):
        assert_same_picture(tile, heat_maps.signed(values, (32, 32)))
