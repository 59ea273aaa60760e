"""Every field of a recipe has an option, and those that may be unset take the word none."""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Callable
from dataclasses import fields, replace
from types import NoneType
from typing import Any, get_args, get_type_hints

import pytest

from numpy_vit.cli import train_options, train_task
from numpy_vit.training.recipe import Recipe
from numpy_vit.training.recipes import RECIPES

Cli = Callable[..., subprocess.CompletedProcess[str]]

MAY_BE_NONE = {name for name, kind in get_type_hints(Recipe).items() if NoneType in get_args(kind)}


def parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    train_options.add_training(parser)
    return parser.parse_args(arguments)


def option(field: str) -> str:
    return f"--{field.replace('_', '-')}"


def test_every_field_of_a_recipe_has_an_option() -> None:
    names = [field.name for field in fields(Recipe)]
    assert sorted(train_options.RECIPE_FIELDS) == sorted(names)
    assert vars(parsed()) == dict.fromkeys(names)
    values = {name: str(value) for name, value in vars(Recipe()).items() if value is not None}
    values |= {"layer_decay": "0.5", "ema": "0.5", "freeze": "stem", "crop_scale": "0.5", "auto_augment": "3a"}
    switches = {"flip": "--flip", "nesterov": "--no-nesterov"}
    valued = [f"{option(name)}={value}" for name, value in values.items() if name not in switches]
    every = parsed(*valued, *switches.values())
    found = {name: str(value) for name, value in train_options.recipe_fields(every).items()}
    assert found == {**values, "flip": "True"}
    assert sorted(train_options.given(every)) == sorted(map(option, names))


def test_none_is_for_the_fields_that_may_be_none() -> None:
    assert {"layer_decay", "clip", "ema", "freeze", "crop_scale", "auto_augment"} == MAY_BE_NONE
    for name in MAY_BE_NONE:
        assert train_options.recipe_fields(parsed(option(name), "none")) == {name: None}
        assert train_options.given(parsed(option(name), "none")) == [option(name)]  # which --resume refuses
    assert train_options.recipe_fields(parsed()) == {}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--ema", "off"], "argument --ema: invalid float or none value: 'off'"),
        (["--erase", "none"], "argument --erase: invalid float value: 'none'"),
        (["--clip", "None"], "invalid float or none value: 'None'"),
    ],
)
def test_other_words_are_refused(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parsed(*arguments)
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "arguments", "changes"),
    [
        ("deit", ["--auto-augment", "none"], {"auto_augment": None}),
        ("deit", ["--crop-scale", "none", "--ema", "none"], {"crop_scale": None, "ema": None}),
        ("deit", ["--crop-scale", "none", "--padding", "4"], {"crop_scale": None, "padding": 4}),
        ("deit", ["--padding", "4"], {"crop_scale": None, "padding": 4}),
        ("cifar10", ["--crop-scale", "0.5"], {"crop_scale": 0.5, "padding": 0}),
        ("cifar10", ["--crop-scale", "none"], {}),  # and its padding stays
        ("finetune", ["--layer-decay", "none", "--clip", "none"], {"layer_decay": None, "clip": None}),
        ("deit", ["--erase-mode", "const", "--patch-drop-steps", "3"], {"erase_mode": "const", "patch_drop_steps": 3}),
    ],
)
def test_what_is_given_takes_the_place_of_what_a_recipe_sets(
    name: str, arguments: list[str], changes: dict[str, Any]
) -> None:
    recipe = RECIPES[name].recipe
    assert train_task.changed(parsed(*arguments), recipe) == replace(recipe, **changes)


def test_the_command_turns_off_what_the_recipe_sets(cli: Cli) -> None:
    off = ("--auto-augment", "none", "--crop-scale", "none", "--ema", "none", "--clip", "none")
    result = cli("train", "--recipe", "deit", "--print-recipe", *off)
    assert result.returncode == 0, result.stderr
    recipe = json.loads(result.stdout)["recipe"]
    assert {name: recipe[name] for name in MAY_BE_NONE} == dict.fromkeys(MAY_BE_NONE)
    assert (recipe["erase"], recipe["erase_mode"]) == (0.25, "pixel")
    words = " ".join(cli("train", "--help").stdout.split())
    assert "none turns off what a recipe sets of --layer-decay, --clip, --ema, --freeze." in words
    assert "none turns off what a recipe sets of --crop-scale, --auto-augment." in words
