"""Finding the parts of a model that someone made of torch.nn's layers, by shape and by the names people use."""

from __future__ import annotations

from collections.abc import Sequence

from numpy_vit.checkpoints.layouts.rules import (
    Rule,
    Tensors,
    layer,
    one,
    patches_channel_first,
    rename,
)
from numpy_vit.tree import Array

_CLASS = ("cls_token", "class_token", "cls", "class_embedding", "cls_embedding", "cls_emb")
_POSITIONS = (
    "pos_embed", "pos_embedding", "position_embedding", "position_embeddings", "positional_embedding",
    "positional_embeddings", "pos_emb", "pos_embeddings", "position_embedding.weight", "pos_embed.weight",
    "pos_embedding.weight",
)  # fmt: skip
_PATCHES = ("patch_embed.proj", "patch_embedding.proj", "patch.proj", "patch_embedding", "patch_embed", "to_patch")
_NORMS = (
    "norm",
    "ln",
    "final_norm",
    "norm_final",
    "ln_f",
    "ln_post",
    "layer_norm",
    "layernorm",
    "post_norm",
    "head_norm",
)
_HEADS = ("head", "classifier", "fc", "mlp_head", "linear_head", "classification_head", "cls_head", "out")


def found(tensors: Tensors, names: Sequence[str], ndims: Sequence[int]) -> str | None:
    """Return the key that is one of `names`, alone or at the end of a path, and has one of these ranks."""
    for name in names:
        for key in tensors:
            if (key == name or key.endswith(f".{name}")) and tensors[key].ndim in ndims:
                return key
    return None


def embedding(tensors: Tensors, outside: Sequence[str]) -> list[Rule] | None:
    """Return the rules for patches, class token and positions, found `outside` the blocks; None without patches."""
    rest = {key: tensors[key] for key in outside}
    patch = next((key for key in rest if rest[key].ndim == 4), None)
    patch = patch or found(rest, [f"{name}.weight" for name in _PATCHES], (2,))
    if patch is None:
        return None
    bias = rename("patch_embed.proj.bias", f"{patch.removesuffix('.weight')}.bias")
    weight = "patch_embed.proj.weight"
    rules = [rename(weight, patch) if rest[patch].ndim == 4 else patches_channel_first(patch), bias]
    norm = f"{patch.removesuffix('.weight').rpartition('.')[0]}.norm"
    rules += layer("patch_embed.norm", norm) if f"{norm}.weight" in rest and norm != ".norm" else []
    for ours, names in (("cls_token", _CLASS), ("pos_embed", _POSITIONS)):
        key = found(rest, names, (1, 2, 3))
        if key is not None:
            rules.append(_three_axes(ours, key, rest[key]))
    return rules


def end(tensors: Tensors, outside: Sequence[str]) -> list[Rule]:
    """Return the rules for the last norm and the head among the keys `outside` the blocks."""
    rest = {key: tensors[key] for key in outside}
    rules: list[Rule] = []
    norm = found(rest, [f"{name}.weight" for name in _NORMS], (1,))
    head = found(rest, [f"{name}.weight" for name in _HEADS], (2,))
    for name in () if head else _HEADS:  # a Sequential of a norm and a linear layer, or of the latter alone
        numbered = [key for key in rest if key.removesuffix(".weight").rpartition(".")[0].split(".")[-1] == name]
        head = head or next((key for key in numbered if rest[key].ndim == 2), None)
        norm = norm or next((key for key in numbered if rest[key].ndim == 1 and key.endswith(".weight")), None)
    if norm is not None:
        in_head = head is not None and norm.rpartition(".")[0].rpartition(".")[0] == _parent(head)
        rules += layer("fc_norm" if in_head and _parent(head) else "norm", norm.removesuffix(".weight"))
    if head is not None:
        rules += layer("head", head.removesuffix(".weight"))
    return rules


def _parent(key: str | None) -> str:
    return "" if key is None else key.removesuffix(".weight").rpartition(".")[0]


def _three_axes(ours: str, theirs: str, example: Array) -> Rule:
    width = example.shape[-1]
    leading = example.shape[:-2] if example.ndim > 1 else ()
    ndim = example.ndim

    def back(a: Array) -> Array:
        return a.reshape(-1) if ndim == 1 else a.reshape(*leading, -1, width)

    return one(ours, theirs, lambda a: a.reshape(1, -1, width), back)


def pixels(tensors: Tensors, rules: Sequence[Rule]) -> int:
    """Return C·py·px where the patch projection is a matrix, else 0."""
    key = next(rule.theirs[0] for rule in rules if rule.ours == ("patch_embed.proj.weight",))
    return tensors[key].shape[1] if tensors[key].ndim == 2 else 0
