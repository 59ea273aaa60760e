"""The reference file: what another implementation computed, so that it need not be there for the comparison.

One safetensors or npz file, version 1, that any framework can write.  Its entries:

    numpy_vit_reference    whole number      the version, 1, as an array of one entry
    images                 (B, C, Y, X)      the model's input
    output/NAME            any               what the module NAME of timm computed: "output/blocks.0.attn", where
                                             "output/logits" has to be there and as many others as you can give
    upstream               (B, K)            the derivative of the loss with respect to the logits
    gradient/KEY           as the parameter  the loss's gradient, under the checkpoint's own key or timm's
    gradient/images        (B, C, Y, X)      optional: with respect to the input
    raw                    (B, Y', X', C)    optional: the pictures before preprocessing, 0 ... 255, RGB
    second/NAME            as output/NAME    optional: the same outputs of a second run, which show dropout left on
    dtype                  text              what it was computed in: float64, float32, bfloat16 or float16.  Default:
                                             the logits' own dtype.  Texts are entries of safetensors' metadata; in
                                             npz, bytes: np.frombuffer(b"bfloat16", np.uint8)
    source                 text              optional: what made it

The names of outputs are those that `vit.forward` records: "patch_embed", "pos_drop", "norm_pre", "blocks.0.norm1",
"blocks.0.attn.qkv", "blocks.0.attn.proj", "blocks.0.attn", "blocks.0.norm2", "blocks.0.mlp.fc1", "blocks.0.mlp.act",
"blocks.0.mlp.fc2", "blocks.0.mlp", "blocks.0", "norm", "fc_norm", "logits"; others are listed and not compared.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from numpy_vit.checkpoints import read_tensors, safetensors
from numpy_vit.checks.precision import PRECISIONS
from numpy_vit.errors import CheckpointError
from numpy_vit.files import replacing
from numpy_vit.tree import Array

VERSION = 1
_MARK = "numpy_vit_reference"
_SINGLE = ("images", "upstream", "raw")
_GROUPS = ("output", "gradient", "second")


class ReferenceError(CheckpointError):
    """A reference that cannot serve as one."""


@dataclass(frozen=True)
class Reference:
    """What another implementation computed.

    Parameters
    ----------
    images : (B, C, Y, X)
    outputs : by timm's module names; "logits" among them
    dtype : "float64", "float32", "bfloat16" or "float16"
    upstream : (B, K), None where there are no gradients
    gradients : by parameter keys; "images" for the input's
    raw : (B, Y', X', C), the pictures before preprocessing
    second : outputs of a second run
    source : what made it, in words

    Raises
    ------
    ReferenceError : no logits, zeros everywhere, gradients without upstream, or shapes that contradict each other.
    """

    images: Array
    outputs: Mapping[str, Array]
    dtype: str = "float32"
    upstream: Array | None = None
    gradients: Mapping[str, Array] = field(default_factory=dict)
    raw: Array | None = None
    second: Mapping[str, Array] = field(default_factory=dict)
    source: str = ""

    def __post_init__(self) -> None:
        if self.dtype not in PRECISIONS:
            raise ReferenceError(f"dtype {self.dtype!r} is unknown: choose one of {', '.join(PRECISIONS)}")
        if "logits" not in self.outputs:
            raise ReferenceError("the reference has no output/logits: without them nothing can be compared")
        if self.images.ndim != 4:
            raise ReferenceError(f"images {self.images.shape} have to be (B, C, Y, X)")
        logits = self.outputs["logits"]
        if logits.ndim != 2 or len(logits) != len(self.images):
            raise ReferenceError(f"logits {logits.shape} do not fit {len(self.images)} images: they are (B, K)")
        _refuse_zeros("images", self.images, "use random images")
        _refuse_zeros("logits", logits, "a model with a zero head agrees with anything; use a trained or a random head")
        if self.gradients:
            if self.upstream is None or self.upstream.shape != logits.shape:
                given = None if self.upstream is None else self.upstream.shape
                raise ReferenceError(
                    f"gradients need the upstream gradient {logits.shape} they began with, not {given}"
                )
            _refuse_zeros("upstream", self.upstream, "every gradient of it is zero; draw it at random")


def _refuse_zeros(name: str, array: Array, remedy: str) -> None:
    if not np.any(array):
        raise ReferenceError(f"the reference's {name} are all zeros, which proves nothing: {remedy}")


def read_reference(path: str | os.PathLike[str]) -> Reference:
    """Read a reference file, safetensors or npz.

    Raises
    ------
    CheckpointError : the file is missing or broken, of another version, or cannot serve as a reference.
    """
    tensors = {name.replace("\\", "/"): tensor for name, tensor in read_tensors(path).items()}
    mark = tensors.pop(_MARK, None)
    if mark is None:
        raise ReferenceError(f"{path} is no reference file: {_MARK} is missing; scripts/dump_reference.py writes one")
    if mark.size != 1 or int(mark.flat[0]) != VERSION:
        raise ReferenceError(f"{path} is a reference of version {mark.tolist()}; this numpy_vit reads {VERSION}")
    texts = _texts(path, tensors)
    if "images" not in tensors:
        raise ReferenceError(f"{path} has no images: without the input nothing can be compared")
    groups: dict[str, dict[str, Array]] = {group: {} for group in _GROUPS}
    for name, tensor in tensors.items():
        group, _, rest = name.partition("/")
        if group in groups and rest:
            groups[group][rest] = tensor
        elif name not in _SINGLE:
            raise ReferenceError(f"{path}: the entry {name!r} is none of a reference's; see numpy_vit.checks.reference")
    dtype = texts.get("dtype") or str(groups["output"].get("logits", tensors["images"]).dtype)
    try:
        return Reference(
            tensors["images"], groups["output"], dtype, tensors.get("upstream"), groups["gradient"],
            tensors.get("raw"), groups["second"], texts.get("source", ""),
        )  # fmt: skip
    except ReferenceError as error:
        raise ReferenceError(f"{path}: {error}") from error


def _texts(path: str | os.PathLike[str], tensors: dict[str, Array]) -> dict[str, str]:
    """The metadata: beside the tensors in safetensors, bytes in npz; with the logits' stored dtype."""
    bytes_ = {name: tensors.pop(name) for name in ("dtype", "source") if name in tensors}
    texts: dict[str, str] = {
        name: array.astype(np.uint8).tobytes().decode("utf-8", "replace") for name, array in bytes_.items()
    }
    with Path(path).open("rb") as file:
        if file.read(2) == b"PK":
            return texts
        file.seek(0)
        entries, metadata = safetensors.read_header(file, os.fspath(path))
    stored = {"BF16": "bfloat16", "F16": "float16", "F64": "float64"}
    logits = entries.get("output/logits")
    implied = {"dtype": stored[logits.dtype]} if logits and logits.dtype in stored else {}
    return {**implied, **metadata, **texts}


def write_reference(path: str | os.PathLike[str], reference: Reference) -> None:
    """Write a reference file, whole or not at all: npz where the name ends so, otherwise safetensors."""
    tensors: dict[str, Array] = {_MARK: np.array([VERSION]), "images": reference.images}
    if reference.upstream is not None:
        tensors["upstream"] = reference.upstream
    if reference.raw is not None:
        tensors["raw"] = reference.raw
    for group, entries in zip(_GROUPS, (reference.outputs, reference.gradients, reference.second), strict=True):
        tensors |= {f"{group}/{name}": tensor for name, tensor in entries.items()}
    texts = {"dtype": reference.dtype, "source": reference.source}
    if not os.fspath(path).endswith(".npz"):
        safetensors.write(path, tensors, texts)
        return
    arrays: dict[str, Any] = {**tensors, **{n: np.frombuffer(t.encode(), np.uint8) for n, t in texts.items()}}
    with replacing(path) as file:
        np.savez_compressed(file, **arrays)
