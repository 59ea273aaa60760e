"""The distilled model as timm and Hugging Face evaluate it: one output, the mean of both heads' logits."""

from __future__ import annotations

import numpy as np

from numpy_vit.layers.recording import into
from numpy_vit.models import deit
from numpy_vit.tree import Array, Cache, Params


def forward(
    params: Params,
    images: Array,
    config: deit.Config,
    rng: np.random.Generator | None = None,
    record: dict[str, Array] | None = None,
) -> tuple[Array, Cache]:
    """Return the mean of both heads' logits (B, K); all else is as in models/deit.py."""
    (labels, teacher), cache = deit.forward(params, images, config, rng, record)
    logits = (labels + teacher) / 2
    into(record)("logits", logits)
    return logits, cache


def backward(dlogits: Array, cache: Cache, input_grad: bool = False) -> tuple[Array | None, Params]:
    """Return dimages and the gradients: y = (a + b) / 2, so each head gets half of dy."""
    return deit.backward((dlogits / 2, dlogits / 2), cache, input_grad)
