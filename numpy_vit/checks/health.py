"""Does a checkpoint look healthy?  What the values of its tensors show, whatever their names and layout."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np

from numpy_vit.checks.findings import Finding, collected
from numpy_vit.checks.porting import porting_mistakes
from numpy_vit.tree import Array

_LARGE = 1e4  # no weight of a ViT that works comes near
_SAMPLE = 64  # entries that are compared before whole tensors are
_ZERO_AT_FIRST = ("bias", "cls_token", "reg_token", "dist_token", "mask_token")  # zeros may be all that training left


def health(
    tensors: Mapping[str, Array], num_heads: int | None = None, image_size: tuple[int, int] | None = None
) -> list[Finding]:
    """Look for what is wrong with a checkpoint: values that no training leaves, and mistakes of porting.

    Parameters
    ----------
    tensors : by their names in the file, or in our tree; mistakes that shapes show are looked for under timm's names
    num_heads, image_size : where known

    Returns
    -------
    findings : the worst first; empty for a checkpoint without a fault
    """
    found = [*porting_mistakes(tensors, num_heads, image_size), *_dtypes(tensors)]
    for name, tensor in tensors.items():
        if tensor.dtype.kind == "f" and tensor.size:
            found += _values(name, tensor)
    found += _norms(tensors)
    found += _tied(tensors)
    return collected(found)


def _values(name: str, tensor: Array) -> Iterator[Finding]:
    """NaN, infinities, one value everywhere, values beyond all measure."""
    low, high = float(tensor.min()), float(tensor.max())
    if not np.isfinite((low, high)).all():  # a NaN anywhere makes both NaN
        finite = np.isfinite(tensor)
        nans, infinite = int(np.isnan(tensor).sum()), int(tensor.size - finite.sum())
        text = f"{nans} NaN and {infinite - nans} infinite of {tensor.size} values"
        hint = "training diverged" if nans else "a half precision overflowed"
        yield Finding("wrong", name, f"{text}: {hint}, or the file was damaged")
        return
    if max(-low, high) > _LARGE:
        yield Finding(
            "suspicious", name, f"the largest value is {max(-low, high):.3g}: no trained weight is that large"
        )
    if low == high and tensor.size > 1:
        yield from _constant(name, tensor, low)


def _constant(name: str, tensor: Array, value: float) -> Iterator[Finding]:
    last = name.replace("/", ".").split(".")
    if _is_head(name) and value == 0:
        if last[-1] != "bias":
            text = "the head is all zeros, so every class is equally likely: ImageNet-21k files are published like this"
            yield Finding("suspicious", name, f"{text}, others have lost their head")
    elif tensor.ndim > 1 and value == 0 and not any(part in _ZERO_AT_FIRST for part in last):
        yield Finding("wrong", name, "all zeros: it was never filled, or its branch is cut off")
    elif tensor.ndim > 1 and value != 0:
        yield Finding("wrong", name, f"every value is {value:.4g}: it was never initialised or never loaded")


def _is_head(name: str) -> bool:
    parts = name.replace("/", ".").split(".")
    return any(part in ("head", "head_dist", "heads", "classifier") for part in parts[:-1]) and "blocks" not in parts


def _norms(tensors: Mapping[str, Array]) -> Iterator[Finding]:
    """LayerNorm weights that do not look like weights."""
    untouched = []
    pairs = [pair for pair in map(_norm_pair, tensors) if pair and pair[1] in tensors]
    for weight_name, bias_name in pairs:
        weight, bias = tensors[weight_name].astype(np.float64), tensors[bias_name].astype(np.float64)
        if not weight.size or weight.shape != bias.shape or not (np.isfinite(weight).all() and np.isfinite(bias).all()):
            continue
        if not weight.any():
            yield Finding("wrong", weight_name, "a norm's weight is all zeros: nothing of the input passes")
        elif weight.min() == weight.max() == 1 and not bias.any():
            untouched.append(weight_name)
        elif 3 * np.abs(weight).mean() < np.abs(bias).mean() and abs(bias.mean() - 1) < 0.3:
            yield Finding("wrong", weight_name, "a norm's weight is about 0 and its bias about 1: they are exchanged")
        elif weight.std() < 0.5 and abs(weight.mean()) < 0.02 and weight.min() < -0.001:
            text = "a norm's weight is spread around 0: some libraries store weight - 1, and then 1 has to be added"
            yield Finding("suspicious", weight_name, text)
    if untouched and len(untouched) == len(pairs):
        text = f"all {len(pairs)} norms have weight 1 and bias 0: untrained, or loaded without its norms"
        yield Finding("suspicious", "", text)
    else:
        for name in untouched:
            yield Finding("suspicious", name, "weight 1 and bias 0, as before training, unlike the other norms")


def _norm_pair(name: str) -> tuple[str, str] | None:
    """The names of a norm's weight and bias, if `name` is such a weight: by torch's words or Flax's."""
    parts = name.replace("/", ".").split(".")
    if len(parts) < 2 or not any(word in parts[-2].lower() for word in ("norm", "ln")):
        return None
    if parts[-1] not in ("weight", "scale"):
        return None
    return name, name[: -len(parts[-1])] + "bias"


def _dtypes(tensors: Mapping[str, Array]) -> Iterator[Finding]:
    counts = Counter(str(tensor.dtype) for tensor in tensors.values() if tensor.dtype.kind == "f")
    if len(counts) > 1:
        listed = ", ".join(f"{count} of {dtype}" for dtype, count in counts.most_common())
        yield Finding("note", "", f"several precisions in one file: {listed} tensors")
    others = [name for name, tensor in tensors.items() if tensor.dtype.kind not in "f"]
    if others:
        listed = f"{others[0]} ({tensors[others[0]].dtype})" + (f" and {len(others) - 1} more" if others[1:] else "")
        yield Finding("note", "", f"not floats: {listed}; parameters are floats, buffers and quantised weights are not")


def _tied(tensors: Mapping[str, Array]) -> Iterator[Finding]:
    """Tensors with the same values, and thirds of a qkv weight with the same values."""
    first: dict[tuple[object, ...], list[str]] = {}
    for name, tensor in tensors.items():
        if tensor.dtype.kind != "f" or tensor.size < 2:
            continue
        flat = tensor.reshape(-1)
        sample = flat[:: max(1, tensor.size // _SAMPLE)]
        if (sample == sample[0]).all():
            continue  # constants are equal for other reasons
        alike = first.setdefault((tensor.shape, tensor.dtype, sample.tobytes()), [])
        twin = next((other for other in alike if np.array_equal(tensors[other], tensor)), None)
        if twin:
            yield Finding("suspicious", name, f"the same values as {twin}: tied, or copied by mistake")
        alike.append(name)
        if name.endswith(("qkv.weight", "in_proj_weight")) and tensor.ndim == 2 and tensor.shape[0] % 3 == 0:
            q, k, v = np.split(tensor, 3)
            if np.array_equal(q, k) or np.array_equal(k, v) or np.array_equal(q, v):
                yield Finding("wrong", name, "two of its thirds q, k, v are the same: one was copied into two places")
