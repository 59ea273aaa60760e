"""facebookresearch/deit's models_v2 (DeiT III): timm's names but for the layer scales.

Its class token has no position row, which the table's size shows.
"""

from __future__ import annotations

from numpy_vit.checkpoints.layouts import timm
from numpy_vit.checkpoints.layouts.layout import Layout
from numpy_vit.checkpoints.layouts.rules import Tensors, rename

NAME = "deit3"


def detect(tensors: Tensors) -> Layout | None:
    """Return the layout if the blocks have gamma_1 and gamma_2, or None."""
    if "blocks.0.gamma_1" not in tensors or timm.PATCH not in tensors:
        return None
    scales = [rename(f"blocks.{{i}}.ls{n}.gamma", f"blocks.{{i}}.gamma_{n}") for n in (1, 2)]
    rules = [rule for rule in timm.default().rules if ".gamma" not in rule.ours[0]]
    return Layout(NAME, "deit", (*rules, *scales))
