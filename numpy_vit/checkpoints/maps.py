"""A table from anybody's names to ours, for models that no layout knows.

A line is "their key -> our key", with "{i}" for a block's index and, if the array has to move, a transform's name:

    emb.weight                 -> patch_embed.proj.weight   channel_last
    layers.{i}.ln_a.*          -> blocks.{i}.norm1.*
    layers.{i}.q.* + layers.{i}.k.* + layers.{i}.v.* -> blocks.{i}.attn.qkv.*

"*" stands for weight and bias; several keys joined by "+" are put one below the other; "#" begins a comment.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from numpy_vit.checkpoints.layouts import Layout
from numpy_vit.checkpoints.layouts.rules import (
    Rule,
    Tensors,
    batched,
    fused,
    patches_channel_first,
    patches_channel_last,
    rename,
    token,
    transposed,
)
from numpy_vit.errors import CheckpointError
from numpy_vit.models import deit, vit

TRANSFORMS: dict[str, Callable[[str, str], Rule]] = {
    "transpose": transposed,  # a matrix that is (in, out) there
    "batched": batched,  # (R, D) there, (1, R, D) here
    "token": token,  # (D,) there, (1, 1, D) here
    "channel_first": lambda _, theirs: patches_channel_first(theirs),  # a matrix on (channel, row, column) vectors
    "channel_last": lambda _, theirs: patches_channel_last(theirs),  # a matrix on (row, column, channel) vectors
}


def read(path: str | os.PathLike[str]) -> dict[str, str]:
    """Read a map file; the result is what `load` takes as `mapping`.

    Raises
    ------
    CheckpointError : the file cannot be read, or a line has no arrow.
    """
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path}: cannot be read as a map: {error}") from error
    table = {}
    for number, line in enumerate(text.splitlines(), 1):
        content = line.split("#")[0].strip()
        if not content:
            continue
        theirs, arrow, ours = content.partition("->")
        if not arrow or not theirs.strip() or not ours.strip():
            raise CheckpointError(f"{path}, line {number}: {content!r:.80} is not 'their key -> our key [transform]'")
        table[theirs.strip()] = ours.strip()
    return table


def layout(mapping: Mapping[str, str], tensors: Tensors) -> Layout:
    """Return the layout that a map describes.

    Parameters
    ----------
    mapping : their key (or several, joined by "+") to our key, with a transform's name behind it where one is needed

    Raises
    ------
    CheckpointError : an unknown transform, or one where several keys are joined.
    """
    rules = []
    for left, right in mapping.items():
        ours, *transform = right.split()
        for part in ("weight", "bias") if ours.endswith(".*") else ("",):
            theirs = [key.strip().replace("*", part or "*") for key in left.split("+")]
            rules.append(_rule(ours.replace("*", part or "*"), theirs, transform))
    matrices = [
        tensors[key].shape[1]
        for rule in rules
        for key in rule.theirs
        if rule.ours == ("patch_embed.proj.weight",) and key in tensors and tensors[key].ndim == 2
    ]
    distilled = any("dist_token" in rule.ours for rule in rules)
    return Layout("map", "torch", tuple(rules), model=deit if distilled else vit, pixels=next(iter(matrices), 0))


def _rule(ours: str, theirs: list[str], transform: list[str]) -> Rule:
    if not transform:
        return rename(ours, theirs[0]) if len(theirs) == 1 else fused(ours, theirs)
    if len(theirs) > 1 or len(transform) > 1 or transform[0] not in TRANSFORMS:
        raise CheckpointError(
            f"the map's transform {' '.join(transform)!r} for {ours} has to be one of {', '.join(TRANSFORMS)}, "
            "and stand behind a single key"
        )
    return TRANSFORMS[transform[0]](ours, theirs[0])
