"""Anybody's Vision Transformer as our model, and an account of how its file was understood."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from numpy_vit import tree
from numpy_vit.checkpoints import infer, maps, resize, stated, weights
from numpy_vit.checkpoints.layouts import Assumption, Layout
from numpy_vit.checkpoints.layouts.families import FAMILIES
from numpy_vit.checkpoints.layouts.rules import Tensors
from numpy_vit.checkpoints.reading import read_tensors
from numpy_vit.checkpoints.report import Report
from numpy_vit.checkpoints.unwrap import Unwrapped, unwrap
from numpy_vit.errors import CheckpointError
from numpy_vit.models import deit, vit
from numpy_vit.tree import Array, Params

_FOLDER = ("model.safetensors", "model.safetensors.index.json", "checkpoint.safetensors", "pytorch_model.bin")


@dataclass(frozen=True)
class Loaded:
    """A model from a file.

    Parameters
    ----------
    model : its module, models.vit or models.deit: model.predict(params, images, config)
    config, params : its configuration and its parameters, copies that may be written to
    report : how the file was understood
    layout : how its tensors are named; layout.pack takes tree.flatten(params) back
    extra : what our own files hold besides: preprocessing, class names
    """

    model: ModuleType
    config: vit.Config
    params: Params
    report: Report
    layout: Layout
    extra: dict[str, Any]


def load(
    path: str | os.PathLike[str],
    dtype: DTypeLike = np.float32,
    *,
    mapping: Mapping[str, str] | None = None,
    grid: tuple[int, int] | None = None,
    resizing: str | None = None,
    fill: np.random.Generator | None = None,
    **overrides: Any,
) -> Loaded:
    """Load a checkpoint of any known layout: timm, Hugging Face, torchvision, Google, facebook, hand-made, ours.

    Parameters
    ----------
    path : a file of any format that `read_tensors` reads, or a folder with one of the usual names in it
    mapping : their keys to ours, for a naming that no layout knows (see maps.py)
    grid : (rows, columns) of the stored position table's patches, where they are no square
    resizing : how positions are resized, a key of resize.RESIZES; None: as the family does
    fill : draws the weights that are missing or have another shape; None: such a file is refused
    overrides : fields of the model's Config; they win over what the file says.  Another image_size resizes the
        position table, another patch_size the patch projection

    Raises
    ------
    CheckpointError : the file is broken, of no known layout, lacks weights, or leaves something open that has to be
        asked; the message says which argument answers it.
    ValueError : an override that is no field of Config, or contradicts another.
    """
    file = _file(Path(path))
    model_fields = {field.name for field in fields(vit.Config)}
    if unknown := sorted(set(overrides) - model_fields):
        raise ValueError(f"{', '.join(unknown)}: no field of Config; those are {', '.join(sorted(model_fields))}")
    if resizing is not None and resizing not in resize.RESIZES:
        raise ValueError(f"resizing {resizing!r} is unknown: choose one of {', '.join(resize.RESIZES)}")
    said = stated.read(file)
    found = unwrap(read_tensors(file)) if mapping is None else _mapped(read_tensors(file), mapping)
    if found.layout is None:
        shown = ", ".join(list(found.tensors)[:4])
        raise CheckpointError(f"{file}: no known layout has keys such as {shown or '(none)'}: give a map of them")
    given = {**overrides, **({} if grid is None else {"grid": grid})}
    try:
        return _Loading(file, found, found.layout, said, given, resizing).result(np.dtype(dtype), fill)
    except CheckpointError as error:
        raise CheckpointError(f"{file}: {error}") from error


def _file(path: Path) -> Path:
    if not path.is_dir():
        return path
    for name in _FOLDER:
        if (path / name).is_file():
            return path / name
    raise CheckpointError(f"{path}: the folder has none of {', '.join(_FOLDER)}: give a file")


def _mapped(tensors: Tensors, mapping: Mapping[str, str]) -> Unwrapped:
    """A map names keys as they are in the file, or within its container."""
    bare = maps.layout(mapping, tensors)
    if any(key in tensors for rule in bare.rules for key in (k.replace("{i}", "0") for k in rule.theirs)):
        return Unwrapped(tensors, bare)
    inner = unwrap(tensors)
    return replace(inner, layout=maps.layout(mapping, inner.tensors))


@dataclass(frozen=True)
class _Loading:
    """One file on its way; `given` is what the caller says, `said` what the file says besides tensors."""

    file: Path
    found: Unwrapped
    layout: Layout
    said: stated.Stated
    given: dict[str, Any]
    resizing: str | None

    def result(self, dtype: np.dtype[Any], fill: np.random.Generator | None) -> Loaded:
        layout = self.layout
        # a class token that absorbs its position row is a sum: not in half precision
        wide = {np.dtype(t): np.promote_types(t, dtype) for t in (np.float16, np.float32)}
        tensors = {key: a.astype(wide.get(a.dtype, a.dtype), copy=False) for key, a in self.found.tensors.items()}
        known = {**self.said.fields, **self.given}
        shape, assumed = infer.patch_shape(layout, known)
        flat = layout.unpack(tensors, shape)
        inferred = infer.fields(flat, layout)
        assumed += infer.customs(layout, inferred, known)
        computed = known.get("pos_embed", "learned") != "learned"
        if computed:  # our own files hold the table for others
            flat.pop("pos_embed", None)
        assumed += infer.heads(flat, inferred, known)
        stored = infer.positions(flat, inferred, layout, {**known, **self._stored_grid(inferred)})
        config, more = self._config(inferred, stored)
        flat, resized = self._resized(flat, config, stored)
        expected = weights.shapes(layout.model, config)
        missing, misshaped = weights.faults(flat, expected)
        if missing or misshaped:
            flat = self._filled(flat, config, expected, fill)
        if self.said.own:  # of which nothing is open
            assumed, more = [], []
        params = {key: np.array(flat[key], dtype) for key in expected}  # copies, whatever they were views of
        ours = {*expected, *(("pos_embed",) if computed else ())}
        unexpected, ignored = layout.left_over(self.found.tensors, ours)
        report = Report(
            str(self.file),
            "numpy_vit" if self.said.own else layout.name,
            "numpy_vit" if self.said.own else self._family(),
            self.found.prefixes,
            tuple((k, v) for k, v in inferred.items() if k not in {a.field for a in assumed} and k not in known),
            tuple(a for a in (*assumed, *more)),
            tuple((name, value, self.said.by) for name, value in self.said.fields.items() if name not in self.given),
            tuple(self.given.items()),
            tuple(resized),
            tuple(missing),
            tuple(misshaped),
            tuple(unexpected),
            (*self.found.ignored, *ignored),
            tuple(weights.warnings(params)),
        )
        return Loaded(layout.model, config, tree.unflatten(params), report, layout, self.said.extra)

    def _family(self) -> str:
        """DINO's and DeiT's encoders have timm's names; the containers of training files tell DINO's."""
        dino = {"teacher/", "student/"} & set(self.found.prefixes)
        return "dino" if dino and self.layout.family == "timm" else self.layout.family

    def _stored_grid(self, inferred: dict[str, Any]) -> dict[str, Any]:
        if "grid" in self.given:
            return {}
        if self.said.image_size is None:
            return {}
        return {"grid": tuple(s // p for s, p in zip(self.said.image_size, inferred["patch_size"], strict=True))}

    def _config(self, inferred: dict[str, Any], stored: tuple[int, int] | None) -> tuple[vit.Config, list[Assumption]]:
        """Put everything together; the image is that of the position table unless somebody says otherwise."""
        assumed = []
        values = {**inferred, **self.said.fields, **{k: v for k, v in self.given.items() if k != "grid"}}
        if "image_size" not in self.given:
            if stored is not None:
                values["image_size"] = tuple(n * p for n, p in zip(stored, inferred["patch_size"], strict=True))
            elif self.said.image_size is not None:
                values["image_size"] = self.said.image_size
            else:
                values["image_size"] = tuple(224 // p * p or p for p in inferred["patch_size"])
                assumed.append(Assumption("image_size", values["image_size"], "near 224: no position table says it"))
        if values["fc_norm"] == (values["global_pool"] == "avg"):
            values["fc_norm"] = None  # as in timm
        config_type = deit.Config if self.layout.model is deit else vit.Config
        try:
            return config_type(**values), assumed
        except (ValueError, TypeError) as error:
            if self.given:
                raise ValueError(f"{self.file}: {error}") from error
            raise CheckpointError(str(error)) from error

    def _resized(
        self, flat: dict[str, Array], config: vit.Config, stored: tuple[int, int] | None
    ) -> tuple[dict[str, Array], list[str]]:
        done = []
        weight = flat["patch_embed.proj.weight"]
        if weight.shape[2:] != config.patch:
            flat["patch_embed.proj.weight"] = resize.patch_kernel(weight, config.patch)
            done.append(f"the patch projection from {weight.shape[2:]} to {config.patch} by pseudo-inverse (FlexiViT)")
        if stored is not None and stored != config.grid:
            prefix = 0 if config.no_embed_class else config.num_prefix_tokens
            rule = self.resizing or FAMILIES[self._family()].positions
            flat["pos_embed"] = resize.positions(flat["pos_embed"], prefix, stored, config.grid, resize.RESIZES[rule])
            done.append(f"positions from a grid of {stored} to {config.grid} by the rule {rule!r}")
        return flat, done

    def _filled(
        self,
        flat: dict[str, Array],
        config: vit.Config,
        expected: dict[str, tuple[int, ...]],
        fill: np.random.Generator | None,
    ) -> dict[str, Array]:
        missing, misshaped = weights.faults(flat, expected)
        if fill is None:
            sources = self.layout.sources(self.found.tensors, config.depth)
            faults = [f"{key} is missing (from {' + '.join(sources.get(key, ('nothing',)))})" for key in missing]
            faults += [f"{key} is {flat[key].shape} instead of {expected[key]}" for key in misshaped]
            more = f"; and {len(faults) - 5} more" if len(faults) > 5 else ""
            raise CheckpointError(f"its weights do not make the model: {'; '.join(faults[:5])}{more}")
        drawn = tree.flatten(self.layout.model.init(config, fill))
        return {**flat, **{key: drawn[key] for key in (*missing, *misshaped)}}
