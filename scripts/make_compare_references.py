"""Write tests/checks/references: a checkpoint, and what timm's models of its weights compute, right and wrong.

    python scripts/make_compare_references.py

Needs timm.  Each file but the first two comes from a model that was built or filled differently on purpose.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from numpy_vit.checkpoints import safetensors
from numpy_vit.checks import live
from numpy_vit.checks.reference import write_reference
from numpy_vit.tree import Array

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "checks" / "references"
SIZES = {
    "img_size": 6, "patch_size": 2, "num_classes": 5, "embed_dim": 8, "depth": 1, "num_heads": 2, "mlp_ratio": 1.5,
}  # fmt: skip
B = 2


def main() -> None:
    """Build, run, write."""
    torch, timm_vit = import_module("torch"), import_module("timm.models.vision_transformer")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    images, upstream = rng.standard_normal((B, 3, 6, 6)), rng.standard_normal((B, 5))
    right = timm_vit.VisionTransformer(**SIZES)
    state = {
        key: (0.15 * rng.standard_normal(leaf.shape) + ("norm" in key and "weight" in key)).astype(np.float32)
        for key, leaf in live.state(right).items()
    }
    FOLDER.mkdir(exist_ok=True)
    safetensors.write(FOLDER / "model.safetensors", state, {"format": "pt"})
    eps = partial(torch.nn.LayerNorm, eps=1e-5)
    tanh = partial(torch.nn.GELU, approximate="tanh")
    made: dict[str, tuple[dict[str, Any], Callable[[str, Array], Array], str]] = {
        "right": ({}, _as_it_is, "float32"),
        "right_bfloat16": ({}, _as_it_is, "bfloat16"),
        "eps_and_tanh": ({"norm_layer": eps, "act_layer": tanh}, _as_it_is, "float32"),
        "heads": ({"num_heads": 4}, _as_it_is, "float32"),
        "position_last": ({}, _position_last, "float32"),
        "stored_k_q_v_and_pooling": ({"global_pool": "avg", "fc_norm": False}, _k_q_v, "float32"),
        "no_norm": ({"final_norm": False}, _as_it_is, "float32"),
        "bgr_and_quick_gelu": ({"act_layer": "quick_gelu"}, _bgr, "float64"),
    }
    for name, (options, change, dtype) in made.items():
        model = timm_vit.VisionTransformer(**{**SIZES, **options}).eval()
        tensors = {key: torch.tensor(change(key, leaf)) for key, leaf in state.items()}
        model.load_state_dict({key: leaf for key, leaf in tensors.items() if key in model.state_dict()}, strict=True)
        reference = live.trace(model, images, upstream, dtype, source=f"timm, {name.replace('_', ' ')}")
        kind = "npz" if name.startswith("right") else "safetensors"
        write_reference(FOLDER / f"{name}.{kind}", reference)


def _as_it_is(key: str, leaf: Array) -> Array:
    return leaf


def _position_last(key: str, leaf: Array) -> Array:
    return np.roll(leaf, 1, axis=1) if key == "pos_embed" else leaf


def _k_q_v(key: str, leaf: Array) -> Array:
    if ".qkv." not in key:
        return leaf
    q, k, v = np.split(leaf, 3)
    return np.concatenate([k, q, v])


def _bgr(key: str, leaf: Array) -> Array:
    return leaf[:, ::-1].copy() if key == "patch_embed.proj.weight" else leaf


if __name__ == "__main__":
    main()
