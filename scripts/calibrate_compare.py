"""Show how much of what `numpy-vit compare` allows correct models use: timm's, random, in four number formats.

    python scripts/calibrate_compare.py

Prints, for each format, the largest share of the allowance that an output and a gradient took; above 1 would be a false
alarm.  Needs timm; takes half a minute.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np

from numpy_vit import tree
from numpy_vit.checks import live
from numpy_vit.checks.compare import compare
from numpy_vit.checks.judge import Row
from numpy_vit.checks.opening import port_of_params
from numpy_vit.checks.precision import PRECISIONS
from numpy_vit.models import vit

SIZES = {"patch_size": 4, "num_classes": 11, "embed_dim": 48, "num_heads": 3}
OPTIONS: tuple[dict[str, Any], ...] = (
    {}, {"init_values": 0.1}, {"qk_norm": True}, {"global_pool": "avg"}, {"reg_tokens": 4},
)  # fmt: skip


def main() -> None:
    """Run every model in every format and print the worst."""
    import_module("torch").set_num_threads(1)
    models = list(_models())
    for dtype in PRECISIONS:
        worst = {"outputs": 0.0, "gradients": 0.0}
        alarms = 0
        for seed, (model, config) in enumerate(models):
            rng = np.random.default_rng(seed)
            images, upstream = rng.standard_normal((2, 3, 16, 16)), rng.standard_normal((2, 11))
            found = live.trace(copy.deepcopy(model), images, upstream, dtype)
            result = compare(port_of_params(tree.unflatten(live.state(model)), config), found)
            alarms += not result.same
            for row in result.rows:
                kind = "gradients" if row.name.startswith("gradient of ") else "outputs"
                worst[kind] = max(worst[kind], _share(row))
        shares = ", ".join(f"{kind} {share:.2f}" for kind, share in worst.items())
        print(f"{dtype}: {len(models)} models, {alarms} false alarms, largest share of what is allowed: {shares}")


def _models() -> Iterator[tuple[Any, vit.Config]]:
    torch, timm_vit = import_module("torch"), import_module("timm.models.vision_transformer")
    torch.manual_seed(0)
    for deviation in (0.0, 0.1, 0.3, 0.5):
        for depth in (2, 12):
            for options in OPTIONS:
                fields = {**SIZES, "depth": depth, **options}
                model = timm_vit.VisionTransformer(img_size=16, mlp_ratio=2, **fields).eval()
                with torch.no_grad():
                    for leaf in model.parameters() if deviation else ():
                        leaf.copy_(deviation * torch.randn_like(leaf))
                yield model, vit.Config(image_size=16, hidden_dim=96, **fields)


def _share(row: Row) -> float:
    return row.gap / row.allowed if row.allowed else 0.0


if __name__ == "__main__":
    main()
