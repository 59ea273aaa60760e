"""From our tree to a file that timm, Hugging Face or torchvision loads."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from numpy_vit import tree
from numpy_vit.checkpoints import infer, safetensors, stated, torch_writer
from numpy_vit.checkpoints.layouts import Layout, hf_clip, hf_dinov2, hf_vit, timm, torchvision
from numpy_vit.errors import CheckpointError
from numpy_vit.models import deit, vit
from numpy_vit.tree import Array, Params

TARGETS = ("timm", "hf", "torchvision")
SUFFIXES = (".safetensors", ".pt", ".pth", ".bin")
# What a constructor's arguments say and no tensor does, so that files need not.
_ARGUMENTS = {"num_heads", "norm_eps", "act", "image_size", "init_values", "head_dim"}
_RATES = {"drop_rate", "pos_drop_rate", "proj_drop_rate", "attn_drop_rate", "drop_path_rate"}
_ALWAYS = (
    "cls_token", "pos_embed", "patch_embed.proj.bias", "norm.weight", "blocks.0.norm1.weight", "norm_pre.weight",
)  # fmt: skip
# Fields that only this library's tree has.
_NOT_IN_TIMM = {"pre_logits": None, "patch_pre_norm": False, "block": "pre_norm", "head_dim": None}


def save_as(
    path: str | os.PathLike[str],
    config: vit.Config,
    params: Params,
    target: str = "timm",
    extra: dict[str, Any] | None = None,
) -> Layout:
    """Write a model in another library's layout; the suffix says safetensors or torch's zip; whole or not at all.

    Parameters
    ----------
    path : NAME.safetensors (with our configuration in the metadata), or NAME.pt, .pth or .bin
    target : one of TARGETS
    extra : what else the metadata shall say, such as how pictures are prepared; JSON, lost in torch's format

    Returns
    -------
    layout : the layout that was written; hf has several

    Raises
    ------
    ValueError : another suffix or target.
    CheckpointError : the target cannot hold this model; the message names what would be lost.
    """
    suffix = Path(path).suffix
    if suffix not in SUFFIXES:
        raise ValueError(f"{path}: the suffix has to be one of {', '.join(SUFFIXES)}: it says which format is written")
    flat = tree.flatten(params)
    if config.pos_embed not in ("learned", "none"):  # the table is computed here, and stored there
        flat["pos_embed"] = vit.fixed_table(config, flat["patch_embed.proj.weight"].dtype)
    layout = _layout(config, target)
    tensors = layout.pack(flat, config)
    _demand_the_same(layout, config, flat, tensors, target)
    if suffix == ".safetensors":
        stored = {**asdict(config), "pos_embed": "learned" if "pos_embed" in flat else "none"}
        about = json.dumps({**(extra or {}), "config": stored})
        safetensors.write(path, tensors, {"format": "pt", stated.CONVERTED: about})
    else:
        torch_writer.write(path, tensors)
    return layout


def _layout(config: vit.Config, target: str) -> Layout:
    distilled = isinstance(config, deit.Config)
    if target == "timm":
        if wrong := [name for name, value in _NOT_IN_TIMM.items() if getattr(config, name) != value]:
            raise CheckpointError(f"timm's VisionTransformer has no {' or '.join(wrong)} like this model's")
        return timm.default()
    if target == "torchvision":
        return torchvision.default()
    if target != "hf":
        raise ValueError(f"target {target!r} is unknown: choose one of {', '.join(TARGETS)}")
    if config.init_values is not None:
        return hf_dinov2.default(config.reg_tokens > 0, config.swiglu, config.num_classes > 0)
    if config.norm_pre:
        return hf_clip.clip("vision_model.")
    if config.global_pool == "map":
        return hf_clip.siglip("vision_model.")
    return hf_vit.default(distilled)


def _demand_the_same(
    layout: Layout, config: vit.Config, flat: dict[str, Array], tensors: dict[str, Array], target: str
) -> None:
    """Read the tensors again as a stranger would: the same numbers, and a model of the same structure."""
    again = layout.unpack(tensors, config)
    lost = [key for key in flat if key not in again or again[key].shape != flat[key].shape or _differ(again, flat, key)]
    if lost:
        raise CheckpointError(f"the layout {layout.name} of {target} cannot hold {', '.join(lost[:5])}")
    given: dict[str, Any] = {
        "num_heads": config.num_heads,
        "grid": config.grid,
        "no_embed_class": config.no_embed_class,
    }
    found = infer.fields(again, layout)
    infer.customs(layout, found, given)
    infer.heads(again, found, given)
    infer.positions(again, found, layout, given)
    names = {field.name for field in fields(vit.Config)} & found.keys() - _ARGUMENTS - _RATES
    if target == "timm":
        names -= {"global_pool", "fc_norm", "class_token"}  # arguments of its constructor
    ours = {**asdict(config), "fc_norm": config.norm_after_pool if config.final_norm else None}
    ours["patch_size"], ours["hidden_dim"] = config.patch, config.hidden
    if wrong := [f"{name} {ours[name]!r}" for name in sorted(names) if ours[name] != found[name]]:
        raise CheckpointError(f"the layout {layout.name} of {target} has no {', '.join(wrong)}")
    if target != "timm":
        _demand_what_it_always_has(layout, config, flat, target)


def _demand_what_it_always_has(layout: Layout, config: vit.Config, flat: dict[str, Array], target: str) -> None:
    """Where timm's constructor has an argument, the others' models have a fixed part."""
    ours = {key for rule in layout.rules for key in rule.ours}
    if absent := [key for key in _ALWAYS if key in ours and key not in flat]:
        raise CheckpointError(f"the layout {layout.name} of {target} always has {', '.join(absent)}, this model not")
    rows = "reg_token" not in flat or layout.name != "hf-dinov2-registers"
    if rows == config.no_embed_class and config.num_prefix_tokens:
        raise CheckpointError(f"the layout {layout.name} of {target} has no no_embed_class {config.no_embed_class}")
    if config.block != "pre_norm" or (target == "torchvision" and config.act != "gelu"):
        raise CheckpointError(f"{target} has no ViT with block {config.block!r} and act {config.act!r}")


def _differ(again: dict[str, Array], flat: dict[str, Array], key: str) -> bool:
    return again[key].tobytes() != flat[key].tobytes()
