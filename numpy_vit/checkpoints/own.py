"""The checkpoints that we write: safetensors with timm's key names, and the configuration in the metadata."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, fields
from types import ModuleType
from typing import Any

import numpy as np

from numpy_vit import tree
from numpy_vit.checkpoints import safetensors
from numpy_vit.errors import CheckpointError
from numpy_vit.models import deit, vit
from numpy_vit.tree import Array, Params

MODELS: dict[str, ModuleType] = {"vit": vit, "deit": deit}  # by their name in the metadata
_KEY = "numpy_vit"
_VERSION = 1


@dataclass(frozen=True)
class Checkpoint:
    """A model and what belongs to it.

    `model` is its module; `extra` is what the writer added: preprocessing, class names, where it came from.
    """

    model: ModuleType
    config: vit.Config
    params: Params
    extra: dict[str, Any]


def save(path: str | os.PathLike[str], config: vit.Config, params: Params, extra: dict[str, Any]) -> None:
    """Write a ViT or a DeiT, whichever the configuration is one of; `extra` has to be JSON.

    A sin-cos table is not a parameter, but timm's model has it as one: it is written too, so that the file loads
    there with load_state_dict(strict=True).

    Raises
    ------
    ValueError : the configuration of another model.
    """
    kind = next((name for name, model in MODELS.items() if type(config) is model.Config), None)
    if kind is None:
        raise ValueError(f"a {type(config).__module__}.Config is none of those written here: {', '.join(MODELS)}")
    tensors = tree.flatten(params)
    if config.pos_embed not in ("learned", "none"):
        tensors = {"pos_embed": vit.fixed_table(config, next(iter(tensors.values())).dtype), **tensors}
    about = {"version": _VERSION, "model": kind, "config": asdict(config)}
    about = about | extra | about  # a loaded checkpoint's extra may say which model that one was
    safetensors.write(path, tensors, {"format": "np", _KEY: json.dumps(about)})


def load(path: str | os.PathLike[str]) -> Checkpoint:
    """Read what `save` wrote.

    Raises
    ------
    CheckpointError : not such a file, or one whose tensors do not fit its configuration, named one by one.
    """
    tensors, metadata = safetensors.read(path)
    about = _about(path, metadata)
    model, stored = MODELS[about["model"]], about.pop("config")
    if unknown := sorted(set(stored) - {field.name for field in fields(model.Config)}):
        raise CheckpointError(f"{path}: the configuration has fields that are unknown here: {', '.join(unknown)}")
    try:
        config = model.Config(**{key: tuple(v) if isinstance(v, list) else v for key, v in stored.items()})
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: the configuration is broken: {error}") from error
    if config.pos_embed != "learned":
        tensors.pop("pos_embed", None)
    _check(path, tensors, model, config)
    return Checkpoint(model, config, tree.unflatten(tensors), about)


def _about(path: str | os.PathLike[str], metadata: dict[str, str]) -> dict[str, Any]:
    try:
        about = json.loads(metadata[_KEY])
        usable = about["version"] == _VERSION and about["model"] in MODELS and isinstance(about["config"], dict)
    except (KeyError, TypeError, ValueError):
        usable = False
    if not usable:
        raise CheckpointError(f"{path} was not written by numpy_vit {_VERSION}: its metadata lacks the configuration")
    return dict(about)


def _check(path: str | os.PathLike[str], tensors: dict[str, Array], model: ModuleType, config: vit.Config) -> None:
    """Compare names and shapes with those of a model that `config` makes."""
    made = model.init(config, np.random.default_rng(0))
    expected = {name: leaf.shape for name, leaf in tree.flatten(made).items()}
    missing, unexpected = sorted(expected.keys() - tensors.keys()), sorted(tensors.keys() - expected.keys())
    wrong = [
        f"{name} is {tensors[name].shape} instead of {shape}"
        for name, shape in expected.items()
        if name in tensors and tensors[name].shape != shape
    ]
    faults = [f"{name} is missing" for name in missing] + [f"{name} is unexpected" for name in unexpected] + wrong
    if faults:
        raise CheckpointError(f"{path} does not fit its configuration: {'; '.join(faults[:5])}")
