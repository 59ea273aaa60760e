"""Do the tensors make the model that the configuration describes, and do their numbers look alive?"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np

from numpy_vit import tree
from numpy_vit.checkpoints.layouts.rules import Tensors
from numpy_vit.tree import Array


def shapes(model: ModuleType, config: Any) -> dict[str, tuple[int, ...]]:
    """Return the name and shape of every parameter; one block is made, since all are alike."""
    small = replace(config, depth=min(config.depth, 1))
    found = {key: leaf.shape for key, leaf in tree.flatten(model.init(small, np.random.default_rng(0))).items()}
    block = {key: shape for key, shape in found.items() if key.startswith("blocks.0.")}
    return {key: shape for key, shape in found.items() if key not in block} | {
        re.sub(r"^blocks\.0\.", f"blocks.{i}.", key): shape for i in range(config.depth) for key, shape in block.items()
    }


def faults(flat: Tensors, expected: Mapping[str, tuple[int, ...]]) -> tuple[list[str], list[str]]:
    """Return the names that are missing, and those whose shape is not the expected one."""
    missing = [key for key in expected if key not in flat]
    return missing, [key for key, shape in expected.items() if key in flat and flat[key].shape != shape]


def warnings(flat: Tensors) -> list[str]:
    """Return what is suspicious about the numbers: NaN, a head of zeros, constant matrices."""
    found = []
    for key, array in flat.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            found.append(f"{key} {'is all NaN' if np.isnan(array).all() else 'holds NaN or infinity'}")
    for name in ("head", "head_dist"):
        weight = flat.get(f"{name}.weight")
        if weight is not None and not weight.any():
            found.append(f"{name}.weight is all zeros, as in some ImageNet-21k files: every image gets the same logits")
        elif weight is not None and len(weight) > 1 and (weight == weight[0]).all():
            found.append(f"{name}.weight has equal rows: all logits of an image differ by the bias only")
    constant = [key for key, array in flat.items() if _constant(array) and not key.startswith("head")]
    return found + [f"{key} is constant" for key in constant]


def _constant(array: Array) -> bool:
    """Whether a matrix holds one number throughout."""
    return array.ndim > 1 and array.size > 1 and bool((array == array.flat[0]).all())
