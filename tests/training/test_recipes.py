"""The table of recipes: every data set has one, and every one makes a model."""

from __future__ import annotations

from dataclasses import fields

import pytest

from numpy_vit.data import SOURCES
from numpy_vit.models import vit_config
from numpy_vit.models.vit import Config
from numpy_vit.training.recipes import DEFAULTS, RECIPES


def test_every_data_set_has_a_recipe() -> None:
    assert DEFAULTS.keys() == SOURCES.keys()
    assert set(DEFAULTS.values()) <= RECIPES.keys()


@pytest.mark.parametrize("name", RECIPES)
def test_its_fields_are_the_models(name: str) -> None:
    named = RECIPES[name]
    assert set(named.fields) <= {field.name for field in fields(Config)}
    if named.variant is None:
        assert name == "finetune"  # it trains a checkpoint
    else:
        vit_config(named.variant, **named.fields)


def test_the_recipe_of_deit_is_that_of_its_paper() -> None:
    """Touvron et al. 2021, table 9: what does not depend on the size of the batch or the length of the run."""
    deit = RECIPES["deit"]
    recipe = deit.recipe
    assert (recipe.optimizer, recipe.weight_decay, recipe.schedule) == ("adamw", 0.05, "cosine")
    assert (recipe.warmup_epochs, recipe.label_smoothing, recipe.repeats) == (5, 0.1, 3)
    assert (recipe.mixup, recipe.cutmix, recipe.erase) == (0.8, 1.0, 0.25)
    assert recipe.erase_mode == "pixel"
    assert recipe.auto_augment == "rand-m9-mstd0.5-inc1"
    assert deit.fields["drop_path_rate"] == 0.1


def test_recipes_with_published_accuracies_erase_and_drop_as_they_did() -> None:
    for name in ("digits", "mnist", "fashion", "cifar10", "mae", "small", "finetune"):
        recipe = RECIPES[name].recipe
        assert (recipe.erase_mode, recipe.patch_drop_steps) == ("const", 1), name
