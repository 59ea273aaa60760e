"""A new head on a trained body."""

from __future__ import annotations

import numpy as np
import pytest

from numpy_vit import tree
from numpy_vit.errors import CheckpointError
from numpy_vit.models import deit, vit
from numpy_vit.training.finetuning import with_head

CONFIG = vit.Config(image_size=8, patch_size=2, num_classes=5, embed_dim=16, depth=2, num_heads=2)


def test_the_body_stays_and_the_head_is_new() -> None:
    params = vit.init(CONFIG, np.random.default_rng(0))
    config, changed = with_head(vit, CONFIG, params, 3, np.random.default_rng(1), drop_path_rate=0.2)
    assert (config.num_classes, config.drop_path_rate) == (3, 0.2)
    before, after = tree.flatten(params), tree.flatten(changed)
    assert {name for name in after if after[name] is not before.get(name)} == {"head.weight", "head.bias"}
    assert after["head.weight"].shape == (3, 16)
    assert 0.01 < after["head.weight"].std() < 0.03
    assert after["head.weight"].dtype == np.float32
    assert not after["head.bias"].any()
    logits = vit.predict(changed, np.ones((1, 3, 8, 8), np.float32), config)
    assert logits.shape == (1, 3)


def test_a_headless_model_gets_one() -> None:
    bare = vit.Config(**{**vars(CONFIG), "num_classes": 0})
    params = vit.init(bare, np.random.default_rng(0), np.float64)
    config, changed = with_head(vit, bare, params, 4, np.random.default_rng(1))
    assert changed["head"]["weight"].shape == (4, 16)
    assert changed["head"]["weight"].dtype == np.float64
    assert config.num_classes == 4


def test_what_cannot_be_changed() -> None:
    params = vit.init(CONFIG, np.random.default_rng(0))
    with pytest.raises(ValueError, match="depth belongs to the checkpoint: of its fields only act, attn_drop_rate"):
        with_head(vit, CONFIG, params, 3, np.random.default_rng(1), depth=3)
    with pytest.raises(CheckpointError, match="a deit model cannot be fine-tuned"):
        with_head(deit, CONFIG, params, 3, np.random.default_rng(1))
