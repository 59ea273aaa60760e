"""From a checkpoint of any layout, or parameters and a configuration, to our model ready for comparison."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from numpy_vit import tree
from numpy_vit.checkpoints import layouts, load, safetensors
from numpy_vit.checks import distilled
from numpy_vit.checks.port import Port, StoredPositions
from numpy_vit.checks.reference import Reference
from numpy_vit.errors import CheckpointError
from numpy_vit.models import deit, vit
from numpy_vit.tree import Array, Params


@dataclass(frozen=True)
class _Geometry:
    """What a layout's rules have to know about the model."""

    patch: tuple[int, int]
    in_chans: int
    num_heads: int


def open_port(path: str | os.PathLike[str], image_size: tuple[int, int] | None = None, **overrides: Any) -> Port:
    """Load a checkpoint for comparison.

    Parameters
    ----------
    path : a file of any layout that `numpy_vit.checkpoints.load` reads
    image_size : (Y, X) of the images that it will see; where the file's positions are for another, they are resized
    overrides : fields of the configuration that the file does not say

    Raises
    ------
    CheckpointError : the file is missing, broken or of no known layout.
    """
    loaded = load(path, dtype=np.float64, **overrides)
    stored = None
    if image_size is not None and image_size != loaded.config.image:
        table = loaded.params.get("pos_embed")
        if table is not None:
            prefix = 0 if loaded.config.no_embed_class else loaded.config.num_prefix_tokens
            stored = StoredPositions(table, prefix, loaded.config.grid)
        loaded = load(path, dtype=np.float64, **{**overrides, "image_size": image_size})
    return replace(
        port_of_params(loaded.params, loaded.config),
        model=distilled if loaded.model is deit else loaded.model,
        stored=stored,
    )


def port_of_params(params: Params, config: vit.Config) -> Port:
    """Return the port of a parameter tree."""
    return Port(config, tree.flatten(params), np.zeros((0, config.in_chans, *config.image)))


def port_of_state(tensors: Mapping[str, Array], **overrides: Any) -> Port:
    """Return the port of a live model's tensors under its own names, understood as if they had come from a file.

    Raises
    ------
    CheckpointError : tensors of no known layout.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "live.safetensors"
        safetensors.write(path, tensors, {"format": "pt"})
        return open_port(path, **overrides)


def packed_like(tensors: Mapping[str, Array], port: Port) -> dict[str, Array]:
    """Return a port's parameters under the names and in the shapes of a live model's tensors.

    Raises
    ------
    CheckpointError : those are of no known layout.
    """
    layout = layouts.detect(tensors)
    if layout is None:
        raise CheckpointError(f"the live model's keys, such as {', '.join(list(tensors)[:3])}, are of no known layout")
    config = port.config
    return layout.pack(port.params, _Geometry(config.patch, config.in_chans, config.num_heads))


def gradients_of(reference: Reference, port: Port) -> dict[str, Array]:
    """Return the reference's gradients under our keys, whatever layout theirs belong to.

    Raises
    ------
    CheckpointError : gradients of a known layout whose shapes contradict it.
    """
    return under_our_keys(reference.gradients, port)


def under_our_keys(tensors: Mapping[str, Array], port: Port) -> dict[str, Array]:
    """Return tensors that have parameters' names and shapes under our keys; all others keep their names."""
    if not tensors or tensors.keys() & port.params.keys():
        return dict(tensors)
    layout = layouts.detect(tensors)
    if layout is None:
        return dict(tensors)
    config = port.config
    ours = layout.unpack(tensors, _Geometry(config.patch, config.in_chans, config.num_heads))
    sources = layout.sources(tensors, config.depth)
    # a bias that the layout adds, as its model has none, has no gradient there
    ours = {key: leaf for key, leaf in ours.items() if not key.endswith("bias") or _any_bias(sources.get(key, ()))}
    return ours | ({"images": tensors["images"]} if "images" in tensors else {})


def _any_bias(keys: tuple[str, ...]) -> bool:
    return any("bias" in key for key in keys)
