"""Values out of range are named with the remedy."""

from __future__ import annotations

from typing import Any

import pytest

from numpy_vit.data import SOURCES
from numpy_vit.models import vit_config
from numpy_vit.training.recipe import DEFAULTS, Recipe


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"epochs": 0}, "epochs has to be at least 1, not 0"),
        ({"batch_size": 0}, "batch_size has to be at least 1"),
        ({"optimizer": "lion"}, "optimizer has to be one of adamw, adam, sgd, not 'lion'"),
        ({"schedule": "step"}, "schedule has to be one of cosine, linear, constant"),
        ({"lr": -1.0}, "lr has to be positive"),
        ({"lr": float("nan")}, "lr has to be positive"),
        ({"beta2": 1.0}, r"beta2 has to be in \[0, 1\)"),
        ({"epochs": 3, "warmup_epochs": 3.0}, "less than 3 epochs"),
        ({"layer_decay": 0.0}, r"layer_decay has to be in \(0, 1\]"),
        ({"clip": 0.0}, "clip has to be positive"),
        ({"seed": -1}, "seed has to be between"),
        ({"momentum": 0.0, "nesterov": True}, "nesterov needs a momentum"),
    ],
)
def test_faults_are_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Recipe(**fields)


def test_every_data_set_has_a_default_model() -> None:
    assert DEFAULTS.keys() == SOURCES.keys()
    for variant, _ in DEFAULTS.values():
        assert vit_config(variant).num_classes == 10
