"""Our own checkpoints: what is written is read, and nothing else is."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from numpy_vit import tree
from numpy_vit.checkpoints import own, safetensors
from numpy_vit.checkpoints.load import load
from numpy_vit.checks.examples import VIT_CHOICES, vit_example
from numpy_vit.checks.model_examples import DEIT_CHOICES, deit_example
from numpy_vit.errors import CheckpointError
from numpy_vit.models import deit, partly_frozen, vit


@pytest.mark.parametrize("choices", VIT_CHOICES.values(), ids=VIT_CHOICES)
def test_round_trip(tmp_path: Path, choices: dict[str, Any]) -> None:
    config = vit_example(choices)
    params = vit.init(config, np.random.default_rng(0))
    own.save(tmp_path / "a", config, params, {"class_names": ["x", "y", "z"]})
    found = own.load(tmp_path / "a")
    assert found.model is vit
    assert found.config == config
    assert found.extra["class_names"] == ["x", "y", "z"]
    written, read = tree.flatten(params), tree.flatten(found.params)
    assert written.keys() == read.keys()
    assert all(written[key].tobytes() == read[key].tobytes() for key in written)
    images = np.random.default_rng(1).standard_normal((2, 2, 6, 12)).astype(np.float32)
    np.testing.assert_array_equal(vit.predict(params, images, config), vit.predict(found.params, images, found.config))


@pytest.mark.parametrize("choices", DEIT_CHOICES.values(), ids=DEIT_CHOICES)
def test_round_trip_of_a_distilled_model(tmp_path: Path, choices: dict[str, Any]) -> None:
    config = deit_example(choices)
    params = deit.init(config, np.random.default_rng(0))
    own.save(tmp_path / "a", config, params, {"class_names": ["x", "y", "z"]})
    written = tree.flatten(params)
    images = np.random.default_rng(1).standard_normal((2, 2, 6, 12)).astype(np.float32)
    for found in (own.load(tmp_path / "a"), load(tmp_path / "a")):
        assert found.model is deit
        assert type(found.config) is deit.Config and found.config == config
        assert found.extra["class_names"] == ["x", "y", "z"]
        read = tree.flatten(found.params)
        assert written.keys() == read.keys()
        assert all(written[key].tobytes() == read[key].tobytes() for key in written)
        expected = deit.predict(params, images, config)
        np.testing.assert_array_equal(found.model.predict(found.params, images, found.config), expected)


def test_the_extra_of_another_file_does_not_say_which_model_this_one_is(written: Path) -> None:
    config = deit_example({})
    extra = own.load(written).extra
    assert extra["model"] == "vit"
    own.save(written, config, deit.init(config, np.random.default_rng(0)), extra)
    assert own.load(written).model is deit


def test_tensors_of_the_other_model_are_refused(written: Path) -> None:
    with pytest.raises(CheckpointError, match="dist_token is missing"):
        own.load(rewritten(written, model="deit"))
    with pytest.raises(CheckpointError, match="was not written by numpy_vit"):
        own.load(rewritten(written, model="swin"))
    with pytest.raises(CheckpointError, match="was not written by numpy_vit"):
        own.load(rewritten(written, model=["vit"]))


def test_another_model_s_configuration_is_not_written(tmp_path: Path) -> None:
    config = partly_frozen.Config(**asdict(vit_example({})), frozen_blocks=1)
    with pytest.raises(ValueError, match=r"partly_frozen.Config is none of those written here: vit, deit"):
        own.save(tmp_path / "a", config, vit.init(config, np.random.default_rng(0)), {})
    assert not (tmp_path / "a").exists()


@pytest.mark.framework
@pytest.mark.parametrize("pos_embed", ["learned", "sincos_2d_mae"])
def test_timm_loads_a_distilled_model_strictly(tmp_path: Path, pos_embed: str) -> None:
    torch = pytest.importorskip("torch")
    timm_deit = pytest.importorskip("timm.models.deit")
    config = deit_example({"pos_embed": pos_embed})
    rng = np.random.default_rng(0)
    params = tree.map(lambda a: a + rng.standard_normal(a.shape).astype(a.dtype), deit.init(config, rng))
    own.save(tmp_path / "a", config, params, {})
    model = timm_deit.VisionTransformerDistilled(
        img_size=(6, 12), patch_size=(2, 4), in_chans=2, num_classes=3, embed_dim=8, depth=2, num_heads=2,
        mlp_ratio=10 / 8,
    )  # fmt: skip
    tensors, _ = safetensors.read(tmp_path / "a")
    model.load_state_dict({key: torch.tensor(leaf) for key, leaf in tensors.items()}, strict=True)
    images = rng.standard_normal((2, 2, 6, 12)).astype(np.float32)
    theirs = model.eval()(torch.tensor(images)).detach().numpy()
    np.testing.assert_allclose(deit.predict(params, images, config), theirs, rtol=1e-4, atol=1e-4)


def test_fixed_tables_are_written_for_other_readers(tmp_path: Path) -> None:
    config = vit_example({"pos_embed": "sincos_2d_mae"})
    own.save(tmp_path / "a", config, vit.init(config, np.random.default_rng(0)), {})
    tensors, _ = safetensors.read(tmp_path / "a")
    assert tensors["pos_embed"].shape == (1, 10, 8)  # class token and 9 patches
    assert not tensors["pos_embed"][0, 0].any()
    np.testing.assert_allclose(
        tensors["pos_embed"][0, 2, :2], np.sin([1, 0.01]), rtol=1e-6
    )  # the second patch's column


def rewritten(path: Path, **changes: Any) -> Path:
    tensors, metadata = safetensors.read(path)
    about = json.loads(metadata["numpy_vit"]) | changes
    safetensors.write(path, tensors, {"numpy_vit": json.dumps(about)})
    return path


@pytest.fixture
def written(tmp_path: Path) -> Path:
    config = vit_example({})
    own.save(tmp_path / "model", config, vit.init(config, np.random.default_rng(0)), {})
    return tmp_path / "model"


def test_a_foreign_file_is_refused(tmp_path: Path) -> None:
    safetensors.write(tmp_path / "other", {"a": np.zeros(3)}, {})
    with pytest.raises(CheckpointError, match="was not written by numpy_vit"):
        own.load(tmp_path / "other")


def test_another_version_is_refused(written: Path) -> None:
    with pytest.raises(CheckpointError, match="was not written by numpy_vit"):
        own.load(rewritten(written, version=2))


def test_broken_configurations_are_named(written: Path) -> None:
    with pytest.raises(CheckpointError, match="fields that are unknown here: colour"):
        own.load(rewritten(written, config={"colour": "red"}))
    with pytest.raises(CheckpointError, match="num_heads 5 does not divide embed_dim 8"):
        own.load(rewritten(written, config={"embed_dim": 8, "num_heads": 5}))
    with pytest.raises(CheckpointError, match="configuration is broken"):
        own.load(rewritten(written, config={"embed_dim": "wide"}))


def test_tensors_that_do_not_fit_are_named(written: Path) -> None:
    tensors, metadata = safetensors.read(written)
    tensors["blocks.1.norm1.weight"] = np.ones(9, np.float32)
    tensors["colour"] = tensors.pop("head.bias")
    safetensors.write(written, tensors, metadata)
    with pytest.raises(CheckpointError) as caught:
        own.load(written)
    for part in ("head.bias is missing", "colour is unexpected", r"blocks.1.norm1.weight is (9,) instead of (8,)"):
        assert part in str(caught.value)
