"""The mistakes of porting a ViT that shapes show, told in words.

The tensors are looked at under timm's names, below any container or prefix ("model/", "module.").  The width D is
what most one-dimensional tensors of norms say, as they cannot be transposed.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping

from numpy_vit.checks.findings import Finding
from numpy_vit.checks.positions import position_mistakes
from numpy_vit.tree import Array

_BLOCK = re.compile(r"blocks\.(\d+)\.(.+)")
_SEPARATE = ("q", "k", "v", "query", "key", "value", "q_proj", "k_proj", "v_proj", "to_q", "to_k", "to_v")


def porting_mistakes(
    tensors: Mapping[str, Array], num_heads: int | None = None, image_size: tuple[int, int] | None = None
) -> Iterator[Finding]:
    """Yield what the shapes of a checkpoint with timm's names show; nothing for other layouts.

    Parameters
    ----------
    tensors : by name, of which only the shapes are looked at
    num_heads, image_size : where known
    """
    prefix = next((name[: name.index("patch_embed.")] for name in tensors if "patch_embed." in name), None)
    if prefix is None or not any(name.startswith(f"{prefix}blocks.") for name in tensors):
        return
    shapes = {name[len(prefix) :]: t.shape for name, t in tensors.items() if name.startswith(prefix)}
    D = _width(shapes)
    if D is None:
        return
    found = [*_blocks(shapes), *_vectors(shapes, D), *_patch(shapes, D), *_linears(shapes, D), *_heads(D, num_heads)]
    found += position_mistakes(shapes, D, image_size)
    yield from (Finding(one.level, prefix + one.tensor if one.tensor else "", one.text) for one in found)


def _width(shapes: Mapping[str, tuple[int, ...]]) -> int | None:
    sizes = Counter(
        shape[0]
        for name, shape in shapes.items()
        if len(shape) == 1 and re.fullmatch(r"(blocks\.\d+\.norm\d|norm|fc_norm|norm_pre)\.(weight|bias)", name)
    )
    return sizes.most_common(1)[0][0] if sizes else None


def _blocks(shapes: Mapping[str, tuple[int, ...]]) -> Iterator[Finding]:
    """Blocks that are missing, or unlike the others."""
    blocks: dict[int, dict[str, tuple[int, ...]]] = {}
    for name, shape in shapes.items():
        if match := _BLOCK.fullmatch(name):
            blocks.setdefault(int(match[1]), {})[match[2]] = shape
    count = max(blocks, default=-1) + 1
    if count > len(blocks):
        # no more than one number a block has to be tried to find six gaps, however large a file's numbers are
        missing = [i for i in range(min(count, len(blocks) + 6)) if i not in blocks]
        listed = ", ".join(map(str, missing[:5])) + (" ..." if missing[5:] else "")
        yield Finding("wrong", "", f"blocks up to {count - 1}, but none of number {listed}")
    names = Counter(name for block in blocks.values() for name in block)
    for name, times in names.items():
        if times == len(blocks):
            continue
        with_it = [i for i, block in blocks.items() if name in block]
        if times > len(blocks) / 2:
            without = next(i for i in blocks if i not in with_it)
            yield Finding(
                "wrong", f"blocks.{without}.{name}", f"missing, while {times} of {len(blocks)} blocks have it"
            )
        else:
            text = f"{times} of {len(blocks)} blocks have such a tensor: blocks of two kinds, or a name spelt two ways"
            yield Finding("suspicious", f"blocks.{with_it[0]}.{name}", text)


def _vectors(shapes: Mapping[str, tuple[int, ...]], D: int) -> Iterator[Finding]:
    """Tokens, norms and layer scales that do not have the width."""
    for name, shape in shapes.items():
        last = name.split(".")[-2:]
        if name in ("cls_token", "reg_token", "dist_token"):
            if len(shape) != 3 or shape[0] != 1:
                yield Finding("wrong", name, f"{shape} has to be (1, tokens, {D}): axes are missing")
            elif shape[2] != D:
                yield Finding("wrong", name, f"{shape} ends with {shape[2]}, the norms have width {D}")
        elif re.fullmatch(r"norm\d?|fc_norm|norm_pre|ls\d", last[0]) and shape != (D,):
            yield Finding("wrong", name, f"{shape} instead of ({D},), which the other norms have")


def _patch(shapes: Mapping[str, tuple[int, ...]], D: int) -> Iterator[Finding]:
    name = "patch_embed.proj.weight"
    shape = shapes.get(name)
    if shape is None:
        yield Finding("wrong", name, "missing: without it no image becomes tokens")
        return
    where = f"{shape}, not (D, C, P, P) with D = {D}"
    if len(shape) == 2 and D in shape:
        size = shape[1] if shape[0] == D else shape[0]
        turned = "" if shape[0] == D else "transpose it, then "
        side = math.isqrt(size // 3)
        guess = f", here ({D}, 3, {side}, {side})" if 3 * side * side == size else ""
        text = f"flattened: {where}; {turned}reshape it to (D, C, P, P){guess} if its columns count (channel, row, "
        yield Finding("wrong", name, text + "column); if they count (row, column, channel), permute as well")
    elif len(shape) != 4:
        yield Finding("wrong", name, f"{where}")
    elif shape[0] != D and shape[3] == D:
        yield Finding("wrong", name, f"{where}: Flax and TensorFlow order it (P, P, C, D); transpose by (3, 2, 0, 1)")
    elif shape[0] != D:
        yield Finding("wrong", name, f"{where}")
    elif shape[3] in (1, 3, 4) and shape[1] == shape[2] != shape[3]:
        yield Finding("wrong", name, f"{where}: channels are last; transpose by (0, 3, 1, 2)")
    elif shape[2] != shape[3]:
        yield Finding("note", name, f"patches of {shape[2]}x{shape[3]} (rows x columns) are not square")


def _linears(shapes: Mapping[str, tuple[int, ...]], D: int) -> Iterator[Finding]:
    """The blocks' matrices and the head: transposed, cut in pieces, or of another width."""
    for name, shape in shapes.items():
        if not name.endswith(".weight") or (len(shape) != 2 and not name.endswith("qkv.weight")):
            continue
        bias = shapes.get(name.removesuffix("weight") + "bias")
        layer = name.removesuffix(".weight").split(".", 2)[-1] if name.startswith("blocks.") else name[:-7]
        if layer == "attn.qkv":
            proj = shapes.get(name.replace("attn.qkv", "attn.proj"), ())
            # heads of another width than D/H: then proj has as many columns as each of q, k and v has rows
            unusual = len(proj) == 2 and proj[0] == D != proj[1] and len(shape) == 2 and shape == (3 * proj[1], D)
            yield from [] if unusual else _qkv(name, shape, bias, D)
        elif layer in [f"attn.{part}" for part in _SEPARATE]:
            text = "queries, keys and values are separate: stack their rows, q then k then v, to attn.qkv"
            yield Finding("wrong", name, text)
        elif layer in ("head", "head_dist"):
            pooled = 2 * D if shape[1] == 2 * D else D  # DINOv2's classifiers read the class token and the mean
            yield from _matrix(name, shape, bias, inputs=shapes.get("pre_logits.fc.weight", (pooled,))[0])
        elif layer in ("mlp.fc1", "attn_pool.q", "attn_pool.kv"):
            yield from _matrix(name, shape, bias, inputs=D)
        elif layer in ("mlp.fc2", "attn.proj"):
            yield from _matrix(name, shape, bias, outputs=D)


def _qkv(name: str, shape: tuple[int, ...], bias: tuple[int, ...] | None, D: int) -> Iterator[Finding]:
    if shape == (D, 3 * D):
        yield Finding("wrong", name, f"transposed: {shape}; PyTorch's linear weights are (out, in), here {(3 * D, D)}")
    elif shape != (3 * D, D):
        rows = shape[0] if shape else 0
        pieces = {D: "only one of q, k and v", 2 * D: "only two of q, k and v, such as keys and values"}
        text = pieces.get(rows, f"queries, keys and values need 3 x {D} = {3 * D} rows, it has {rows}")
        yield Finding("wrong", name, f"{shape} instead of {(3 * D, D)}: {text}")
    if bias is not None and bias != (3 * D,):
        yield Finding("wrong", name.removesuffix("weight") + "bias", f"{bias} instead of ({3 * D},)")


def _matrix(
    name: str, shape: tuple[int, ...], bias: tuple[int, ...] | None, inputs: int = 0, outputs: int = 0
) -> Iterator[Finding]:
    """A linear weight of which one side has to be the width, and the other the length of the bias."""
    out, into = shape
    right = (not inputs or into == inputs) and (not outputs or out == outputs)
    turned = (not inputs or out == inputs) and (not outputs or into == outputs)
    if turned and not right:
        yield Finding("wrong", name, f"transposed: {shape}; PyTorch's linear weights are (out, in), here {(into, out)}")
    elif not right:
        text = f"takes {into} inputs" if inputs else f"makes {out} outputs"
        yield Finding("wrong", name, f"{shape} {text}, not the width {inputs or outputs}")
    elif bias is not None and bias != (out,):
        yield Finding("wrong", name.removesuffix("weight") + "bias", f"{bias}, but its weight has {out} rows")


def _heads(D: int, num_heads: int | None) -> Iterator[Finding]:
    if num_heads and D % num_heads:
        near = min((h for h in range(1, D + 1) if D % h == 0), key=lambda h: abs(h - num_heads))
        yield Finding("wrong", "", f"{num_heads} heads do not divide the width {D}: {near} would")
