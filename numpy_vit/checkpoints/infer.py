"""A model's configuration, read off its tensors: what shapes say, what a family's custom says, what has to be asked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numpy_vit.checkpoints.layouts import Assumption, Layout
from numpy_vit.checkpoints.layouts.families import FAMILIES
from numpy_vit.checkpoints.layouts.layout import depth
from numpy_vit.checkpoints.layouts.rules import Tensors
from numpy_vit.errors import CheckpointError

# (width, MLP's hidden width or None for any, SwiGLU): heads.  Where a head is not 64 wide in published models.
HEADS = {
    (1152, None, False): 16, (1280, None, False): 16, (1408, None, False): 16, (1664, None, False): 16,
    (1536, 6144, False): 16, (1536, 4096, True): 24,
}  # fmt: skip


@dataclass(frozen=True)
class Shape:
    """What unpacking has to know of the patches; heads do not matter for it."""

    patch: tuple[int, int]
    in_chans: int
    num_heads: int = 1


def patch_shape(layout: Layout, given: Mapping[str, Any]) -> tuple[Shape, list[Assumption]]:
    """Return patch sides and channels of a projection that is stored as a matrix; otherwise shapes tell them later.

    Raises
    ------
    CheckpointError : no square patch of 3 or 1 channels has so many pixels.
    """
    if not layout.pixels:
        return Shape((1, 1), 1), []
    for channels in (given["in_chans"],) if "in_chans" in given else (3, 1):
        side = math.isqrt(layout.pixels // channels)
        patch = given.get("patch_size", side)
        sides = (patch, patch) if isinstance(patch, int) else tuple(patch)
        if channels * math.prod(sides) == layout.pixels:
            why = f"{layout.pixels} columns of the patch projection are {channels} channels of {sides[0]}x{sides[1]}"
            found = [Assumption("in_chans", channels, why), Assumption("patch_size", sides, why)]
            return Shape(sides, channels), [a for a in found if a.field not in given]
    raise CheckpointError(
        f"the patch projection has {layout.pixels} columns, no square patch of 3 or 1 channels: "
        "give in_chans and the patch_size of the file"
    )


def fields(flat: Tensors, layout: Layout) -> dict[str, Any]:
    """Return the fields of Config that our tensors' shapes and names determine, positions and heads apart.

    Raises
    ------
    CheckpointError : there is no patch projection, or a block is missing as a whole.
    """
    weight = flat.get("patch_embed.proj.weight")
    if weight is None or weight.ndim != 4:
        raise CheckpointError("there is no patch projection (patch_embed.proj.weight)")
    dim, channels, py, px = weight.shape
    count = depth(flat)
    if gaps := [i for i in range(count) if not any(key.startswith(f"blocks.{i}.") for key in flat)]:
        raise CheckpointError(f"blocks {', '.join(map(str, gaps))} of {count} are missing")
    found: dict[str, Any] = {
        "patch_size": (py, px),
        "in_chans": channels,
        "embed_dim": dim,
        "depth": count,
        "num_classes": len(flat["head.weight"]) if "head.weight" in flat else 0,
        "class_token": "cls_token" in flat,
        "reg_tokens": flat["reg_token"].shape[1] if "reg_token" in flat else 0,
        "patch_bias": "patch_embed.proj.bias" in flat,
        "patch_norm": "patch_embed.norm.weight" in flat,
        "patch_pre_norm": "patch_embed.pre_norm.weight" in flat,
        "norm_pre": "norm_pre.weight" in flat,
        "final_norm": "norm.weight" in flat or "fc_norm.weight" in flat,
        "pre_logits": len(flat["pre_logits.fc.weight"]) if "pre_logits.fc.weight" in flat else None,
        **_block(flat),
        **layout.fields,
    }
    found["fc_norm"] = "fc_norm.weight" in flat if found["final_norm"] else None
    found.setdefault("global_pool", _pool(flat, found))
    return found


def _block(flat: Tensors) -> dict[str, Any]:
    """Every block is as the first one: where one is not, its tensors do not fit and are named."""
    fc1, fc2, qkv = (flat.get(f"blocks.0.{name}.weight") for name in ("mlp.fc1", "mlp.fc2", "attn.qkv"))
    found: dict[str, Any] = {
        "qkv_bias": "blocks.0.attn.qkv.bias" in flat,
        "qk_norm": "blocks.0.attn.q_norm.weight" in flat,
        "init_values": 1e-5 if "blocks.0.ls1.gamma" in flat else None,
    }
    if fc2 is not None and fc2.ndim == 2:
        found["hidden_dim"] = fc2.shape[1]
        found["swiglu"] = fc1 is not None and len(fc1) == 2 * fc2.shape[1]
    if qkv is not None and qkv.ndim == 2 and len(qkv) != 3 * qkv.shape[1]:
        found["inner"] = len(qkv) // 3
    return found


def _pool(flat: Tensors, found: Mapping[str, Any]) -> str:
    if "attn_pool.latent" in flat:
        return "map"
    return "avg" if found["fc_norm"] or not found["class_token"] else "token"


def heads(flat: Tensors, found: dict[str, Any], given: Mapping[str, Any]) -> list[Assumption]:
    """Settle num_heads, and head_dim where q is not as wide as the model, in `found`; return what was assumed.

    Raises
    ------
    CheckpointError : no rule gives a number; or the number given does not divide the width.
    """
    dim = found["embed_dim"]
    inner = found.pop("inner", dim)
    assumed: list[Assumption] = []
    if "num_heads" not in given and "num_heads" not in found:
        found["num_heads"], why = _guess(flat, inner, found)
        assumed.append(Assumption("num_heads", found["num_heads"], why))
    count = given.get("num_heads", found.get("num_heads"))
    if not isinstance(count, int) or count < 1 or inner % count:
        fitting = [h for h in range(1, inner + 1) if inner % h == 0]
        raise CheckpointError(
            f"num_heads {count} does not divide the width {inner} of the queries: "
            f"choose one of {', '.join(map(str, fitting[-12:] if len(fitting) > 12 else fitting))}"
        )
    if inner != dim:
        found["head_dim"] = inner // count
    return assumed


def _guess(flat: Tensors, inner: int, found: Mapping[str, Any]) -> tuple[int, str]:
    if (norm := flat.get("blocks.0.attn.q_norm.weight")) is not None and inner % norm.size == 0:
        return inner // norm.size, f"the norm of the queries has {norm.size} entries"
    swiglu, hidden = found.get("swiglu", False), found.get("hidden_dim")
    for key in ((inner, None, swiglu), (inner, hidden, swiglu)):
        if key in HEADS:
            return HEADS[key], f"published models of width {inner} have so many"
    if inner % 64 == 0:
        return inner // 64, f"{inner} / 64: heads are 64 wide in most models, and no file says how many there are"
    raise CheckpointError(f"the file does not say how many heads share the width {inner}: give num_heads")


def positions(flat: Tensors, found: dict[str, Any], layout: Layout, given: Mapping[str, Any]) -> tuple[int, int] | None:
    """Settle pos_embed and no_embed_class in `found`; return the grid of the stored table, None without a table.

    Raises
    ------
    CheckpointError : the rows fit no square grid and none was given, or fit two.
    """
    table = flat.get("pos_embed")
    if table is None or table.ndim != 3:
        found.setdefault("pos_embed", "none")
        return None
    rows = table.shape[1]
    prefix = int(found["class_token"]) + found["reg_tokens"] + int("dist_token" in flat)
    wanted = given.get("no_embed_class")
    fitting = [
        (bare, grid)
        for bare in ([False, True] if wanted is None else [wanted])
        if (prefix or not bare) and (grid := _grid(rows - (0 if bare else prefix), given))
    ]
    if not fitting:
        raise CheckpointError(
            f"{rows} position rows are no square grid, with {prefix} prefix tokens or without: "
            "give grid=(rows, columns) of the patches"
        )
    if len(fitting) > 1:
        raise CheckpointError(
            f"{rows} position rows are {fitting[0][1]} with {prefix} prefix rows and {fitting[1][1]} without: "
            "give no_embed_class"
        )
    found["no_embed_class"], grid = fitting[0]
    return grid


def _grid(rows: int, given: Mapping[str, Any]) -> tuple[int, int] | None:
    if "grid" in given:
        grid = tuple(given["grid"])
        return (grid[0], grid[1]) if math.prod(grid) == rows else None
    side = math.isqrt(max(rows, 0))
    return (side, side) if side and side * side == rows else None


def customs(layout: Layout, found: dict[str, Any], given: Mapping[str, Any]) -> list[Assumption]:
    """Put what the layout and its family leave unsaid into `found`; return those assumptions that nobody overrides."""
    family = FAMILIES[layout.family]
    assumed = list(layout.assumed)
    named = {a.field for a in assumed}
    custom = f"what {family.title} uses"
    if "norm_eps" not in named:
        assumed.append(Assumption("norm_eps", family.eps, custom))
    if "act" not in named and not found.get("swiglu"):
        assumed.append(Assumption("act", family.act, custom))
    if "global_pool" not in named and "global_pool" not in layout.fields and found["global_pool"] != "map":
        assumed.append(Assumption("global_pool", found["global_pool"], _why_pool(found)))
    assumed.append(Assumption("preprocessing", layout.family, f"the usual one of {family.title}; no tensor shows it"))
    found.update({a.field: a.value for a in assumed if a.field not in ("preprocessing", "scale")})
    return [a for a in assumed if a.field not in given]


def _why_pool(found: Mapping[str, Any]) -> str:
    if not found["class_token"]:
        return "there is no class token"
    if found["global_pool"] == "avg":
        return "the norm stands after pooling (fc_norm)"
    return "there is a class token, and no norm after pooling"
