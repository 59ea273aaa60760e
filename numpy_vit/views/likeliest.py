"""What a model answers, in the order of how likely it finds it."""

from __future__ import annotations

import numpy as np

from numpy_vit.tree import Array


def likeliest(logits: Array, count: int) -> list[tuple[int, float]]:
    """Return the likeliest classes of logits (K,) and their shares, equal ones in the order of their numbers."""
    wide = logits.astype(np.float64)
    shares = np.exp(wide - wide.max())
    shares /= shares.sum()
    return [(i, float(shares[i])) for i in np.argsort(-wide, kind="stable")[:count].tolist()]
