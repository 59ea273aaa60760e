"""From everything in a file to the tensors of one model: containers, prefixes, and what is no weight."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from numpy_vit.checkpoints.layouts import Layout, detect
from numpy_vit.checkpoints.layouts.rules import Tensors

# The first that holds tensors is the model: averaged weights before raw ones, the teacher before the student.
CONTAINERS = (
    "state_dict_ema", "model_ema", "state_dict", "model", "teacher", "student", "model_state_dict", "net", "module",
    "ema", "params", "weights",
)  # fmt: skip
# Of wrappers: at the start of a key, again and again; the last three also within it, as torch.compile leaves them.
_START = ("module.", "_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")
_WITHIN = re.compile(r"(?<=\.)(_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.")
# Of models that have the Transformer as one of their parts.
PREFIXES = (
    "backbone.", "encoder.", "trunk.", "visual.trunk.", "visual.", "model.", "net.", "base_model.model.", "teacher.",
    "student.", "base_encoder.", "online_encoder.", "momentum_encoder.", "image_encoder.", "vit.", "deit.",
    "vision_model.",
)  # fmt: skip
_NO_WEIGHTS = re.compile(
    r"(.*[./])?(num_batches_tracked|relative_position_index|attn_mask|relative_coords_table|position_ids|n_averaged"
    r"|center)"
)


@dataclass(frozen=True)
class Unwrapped:
    """The tensors of one model, the layout that knows them (None if none does), and what was taken away.

    `prefixes` lists, in order, what was stripped: a container as "state_dict/", a prefix as "module.".
    """

    tensors: Tensors
    layout: Layout | None
    prefixes: tuple[str, ...] = ()
    ignored: tuple[str, ...] = field(default=())


def unwrap(tensors: Tensors) -> Unwrapped:
    """Find the model in a file's tensors.

    Parameters
    ----------
    tensors : by their path in the file, containers joined by "/"
    """
    found = detect(tensors)
    if found is not None and found.name == "google-npz":  # "/" is part of its keys
        return Unwrapped(tensors, found)
    inner, containers = _container(tensors)
    ignored = [key for key in tensors if not key.startswith("".join(containers))]
    inner, wrappers = _without_wrappers(inner)
    weights = {key: array for key, array in inner.items() if not _NO_WEIGHTS.fullmatch(key)}
    ignored += [key for key in inner if key not in weights]
    part = _semantic(Unwrapped(weights, detect(weights)), 2)
    return replace(part, prefixes=(*containers, *wrappers, *part.prefixes), ignored=(*ignored, *part.ignored))


def _container(tensors: Tensors) -> tuple[Tensors, tuple[str, ...]]:
    parts = {key.split("/", 1)[0] for key in tensors if "/" in key}
    for name in CONTAINERS:
        if name in parts:
            inner = {key[len(name) + 1 :]: array for key, array in tensors.items() if key.startswith(f"{name}/")}
            deeper, path = _container(inner)
            return deeper, (f"{name}/", *path)
    bare = {key: array for key, array in tensors.items() if "/" not in key}
    if not bare and len(parts) == 1:  # one container of a name that nobody knows
        (name,) = parts
        deeper, path = _container({key[len(name) + 1 :]: array for key, array in tensors.items()})
        return deeper, (f"{name}/", *path)
    return bare, ()


def _without_wrappers(tensors: Tensors) -> tuple[Tensors, tuple[str, ...]]:
    stripped: list[str] = []
    renamed = {}
    for key, array in tensors.items():
        name = key
        while prefix := next((p for p in _START if name.startswith(p)), None):
            name = name[len(prefix) :]
            stripped.append(prefix)
        if _WITHIN.search(name):
            stripped.append("_orig_mod.")
        renamed[_WITHIN.sub("", name)] = array
    if len(renamed) < len(tensors):  # two keys became one: they were not wrappers
        return tensors, ()
    return renamed, tuple(dict.fromkeys(stripped))


def _semantic(found: Unwrapped, rounds: int, names: Sequence[str] = PREFIXES) -> Unwrapped:
    """Strip the prefix of a part, if the keys of a known layout all have it; within a part of a part too."""
    if found.layout is not None or not rounds:
        return found
    for prefix in names:
        inner = {key[len(prefix) :]: array for key, array in found.tensors.items() if key.startswith(prefix)}
        if not inner:
            continue
        part = _semantic(Unwrapped(inner, detect(inner)), rounds - 1)
        if part.layout is not None:
            outside = tuple(key for key in found.tensors if not key.startswith(prefix))
            return replace(part, prefixes=(prefix, *part.prefixes), ignored=(*outside, *part.ignored))
    return found
