"""What a checkpoint says about itself besides tensors: safetensors' metadata, and a config.json beside the file."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from dataclasses import fields as dataclass_fields
from pathlib import Path
from typing import Any

from numpy_vit.checkpoints import safetensors
from numpy_vit.errors import CheckpointError
from numpy_vit.models import vit

OWN = "numpy_vit"  # the metadata of own.save
CONVERTED = "numpy_vit_convert"  # that of our files in other layouts
_ACTS = {
    "gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "gelu_fast": "gelu_tanh",
    "quick_gelu": "quick_gelu", "relu": "relu",
}  # fmt: skip
_NAMES = {field.name for field in dataclass_fields(vit.Config)}


@dataclass(frozen=True)
class Stated:
    """Fields of Config and where they are stated; the image size of the position table; `own`: own.save wrote it."""

    fields: dict[str, Any] = field(default_factory=dict)
    by: str = ""
    image_size: tuple[int, int] | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    own: bool = False


def read(path: Path) -> Stated:
    """Return what the file's metadata, or else a config.json beside it, states.

    Raises
    ------
    CheckpointError : metadata of ours that are broken.
    """
    metadata = _metadata(path)
    for key in (OWN, CONVERTED):
        if key in metadata:
            return replace(_ours(path, metadata[key]), own=key == OWN)
    file = path.parent / "config.json"
    try:
        stored = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):  # none, or somebody else's
        return Stated()
    if not isinstance(stored, dict):
        return Stated()
    if "architecture" in stored:
        return Stated(_timm(str(stored["architecture"])), "config.json")
    return _transformers(stored) if "model_type" in stored else Stated()


def _metadata(path: Path) -> dict[str, str]:
    try:
        with path.open("rb") as file:
            if file.read(9)[8:] not in (b"{", b" "):
                return {}
            return safetensors.read_header(file, str(path))[1]
    except (OSError, CheckpointError):  # whoever reads the tensors says what is wrong
        return {}


def _ours(path: Path, text: str) -> Stated:
    try:
        about = json.loads(text)
        stored = {key: tuple(v) if isinstance(v, list) else v for key, v in about.pop("config").items()}
        image = stored["image_size"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path}: its configuration is broken: {error}") from error
    if unknown := sorted(set(stored) - _NAMES):
        raise CheckpointError(f"{path}: the configuration has fields that are unknown here: {', '.join(unknown)}")
    size = (image, image) if isinstance(image, int) else image
    return Stated(stored, "its metadata", size, about)


def _transformers(stored: dict[str, Any]) -> Stated:
    config = stored.get("vision_config", stored)
    if not isinstance(config, dict):
        return Stated()
    found: dict[str, Any] = {}
    if isinstance(config.get("num_attention_heads"), int):
        found["num_heads"] = config["num_attention_heads"]
    if isinstance(config.get("layer_norm_eps"), float):
        found["norm_eps"] = config["layer_norm_eps"]
    if config.get("hidden_act") in _ACTS:
        found["act"] = _ACTS[config["hidden_act"]]
    size = config.get("image_size")
    pair = (size, size) if isinstance(size, int) else size
    usable = isinstance(pair, (list, tuple)) and len(pair) == 2 and all(isinstance(side, int) for side in pair)
    return Stated(found, "config.json", (pair[0], pair[1]) if pair is not None and usable else None)


def _timm(name: str) -> dict[str, Any]:
    """The numbers that timm's names stand for, and no tensor shows."""
    found: dict[str, Any] = {"norm_eps": 1e-5 if "_clip_" in name else 1e-6}
    if "quickgelu" in name:
        found["act"] = "quick_gelu"
    elif "siglip" in name and any(part in name for part in ("patch32", "large", "so400m_patch16", "giantopt")):
        found["act"] = "gelu_tanh"
    else:
        found["act"] = "gelu"
    if name == "vit_base_patch16_gap_224":
        found["num_heads"] = 16
    return found
