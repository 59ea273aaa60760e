"""Values out of range are named with the remedy."""

from __future__ import annotations

from typing import Any

import numpy as np
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
        ({"erase_mode": "rand"}, "erase_mode has to be one of const, pixel, not 'rand'"),
        ({"repeats": 65}, "repeats has to be between 1 and 64"),
        ({"patch_drop": 1.0}, r"patch_drop has to be in \[0, 1\)"),
        ({"patch_drop_steps": 0}, "patch_drop_steps has to be at least 1, not 0"),
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


@pytest.mark.parametrize(
    ("steps", "shares"),
    [
        (1, [0.6] * 6 + [0.0] * 2),
        (2, [0.6] * 3 + [0.3] * 3 + [0.0] * 2),
        (3, [0.6, 0.6, 0.4, 0.4, 0.2, 0.2, 0.0, 0.0]),
        (4, [0.6, 0.6, 0.45, 0.3, 0.3, 0.15, 0.0, 0.0]),  # one and a half epochs each
        (6, [0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0, 0.0]),
    ],
)
def test_the_share_of_dropped_patches_shrinks_in_steps(steps: int, shares: list[float]) -> None:
    recipe = Recipe(epochs=8, patch_drop=0.6, patch_drop_until=0.75, patch_drop_steps=steps)
    np.testing.assert_allclose([recipe.patch_drop_in(epoch) for epoch in range(8)], shares, rtol=1e-15, atol=0)


@pytest.mark.parametrize("epochs", [1, 7, 20, 23, 45])
@pytest.mark.parametrize("until", [0.0, 0.3, 0.6, 0.7, 0.75, 1.0])
def test_one_step_is_all_or_nothing_to_the_bit(epochs: int, until: float) -> None:
    recipe = Recipe(epochs=epochs, warmup_epochs=0, patch_drop=0.37, patch_drop_until=until)
    assert [recipe.patch_drop_in(epoch) for epoch in range(epochs)] == [
        0.37 if epoch < until * epochs else 0.0 for epoch in range(epochs)
    ]


def test_images_that_cannot_be_augmented_so() -> None:
    mirrored = Recipe(padding=8, pad_mode="reflect")
    for shape in ((1, 8, 12), (1, 12, 8), (3, 4, 4)):
        with pytest.raises(ValueError, match=rf"below the sides \({shape[1]}, {shape[2]}\), not 8; take constant"):
            mirrored.check(shape)
    mirrored.check((3, 9, 9))
    Recipe(padding=8).check((1, 4, 4))
    Recipe(pad_mode="reflect").check((1, 1, 1))  # which is without effect
    for fields in ({"crop_scale": 0.5}, {"auto_augment": "3a"}, {"color_jitter": 0.1}):
        with pytest.raises(ValueError, match="1 or 3 channels, not 2; leave them out"):
            Recipe(**fields).check((2, 8, 8))
        Recipe(**fields).check((1, 8, 8))
    Recipe(flip=True, affine=1.0, padding=4).check((2, 8, 8))
