"""Values out of range are named with the remedy."""

from __future__ import annotations

from typing import Any

import pytest

from numpy_vit.training.recipe import Recipe


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"epochs": 0}, "epochs has to be at least 1, not 0"),
        ({"batch_size": 0}, "batch_size has to be at least 1"),
        ({"optimizer": "lion"}, "optimizer has to be one of adamw, adam, sgd, muon, not 'lion'"),
        ({"schedule": "step"}, "schedule has to be one of cosine, linear, constant"),
        ({"lr": -1.0}, "lr has to be positive"),
        ({"lr": float("nan")}, "lr has to be positive"),
        ({"beta2": 1.0}, r"beta2 has to be in \[0, 1\)"),
        ({"epochs": 3, "warmup_epochs": 3.0}, "less than 3 epochs"),
        ({"layer_decay": 0.0}, r"layer_decay has to be in \(0, 1\]"),
        ({"clip": 0.0}, "clip has to be positive"),
        ({"seed": -1}, "seed has to be between"),
        ({"momentum": 0.0, "nesterov": True}, "nesterov needs a momentum"),
        ({"padding": 4, "crop_scale": 0.5}, "padding 4 and crop_scale 0.5 both crop"),
        ({"pad_mode": "edge"}, "pad_mode has to be one of constant, reflect"),
        ({"repeats": 65}, "repeats has to be between 1 and 64"),
        ({"patch_drop": 1.0}, r"patch_drop has to be in \[0, 1\)"),
        ({"distill": "firm"}, "distill has to be one of soft, hard"),
        ({"distill_temperature": 0.0}, "distill_temperature has to be positive"),
    ],
)
def test_faults_are_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Recipe(**fields)


def test_patches_are_dropped_up_to_a_share_of_the_epochs() -> None:
    recipe = Recipe(epochs=10, patch_drop=0.5, patch_drop_until=0.6)
    assert [recipe.patch_drop_in(epoch) for epoch in range(10)] == [0.5] * 6 + [0.0] * 4
    assert {Recipe().patch_drop_in(epoch) for epoch in range(30)} == {0.0}
