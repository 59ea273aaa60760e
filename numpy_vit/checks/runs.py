"""Two runs of the same model, and the part of a tensor that differs."""

from __future__ import annotations

import numpy as np

from numpy_vit.checks.comparison import Cause
from numpy_vit.checks.precision import PRECISIONS, distance, largest
from numpy_vit.checks.reference import Reference
from numpy_vit.tree import Array

_KERNELS = 64  # roundings by which kernels that add in no fixed order may differ from run to run


def difference(reference: Reference) -> Cause | None:
    """Return what two runs of the reference say about dropout; None if they agree or there is one run only."""
    for name, first in reference.outputs.items():
        if name not in reference.second:
            continue
        gap, scale = distance(first, reference.second[name]), largest(first)
        if gap > _KERNELS * PRECISIONS[reference.dtype] * scale:
            text = (
                f"Two runs of the reference on the same images differ by {gap:.1e}, first at {name}: dropout or drop "
                "path is on. Call model.eval() before the reference is written."
            )
            return Cause(name, "dropout left on", gap, None, text)
    return None


def where(theirs: Array, ours: Array, allowed: float) -> str:
    """Return, as the end of a sentence, which samples, tokens or channels differ if it is not all of them."""
    if theirs.shape != ours.shape:
        return f", and its shape is {theirs.shape}, ours {ours.shape}"
    wrong = ~(np.abs(theirs.astype(np.float64) - ours) <= allowed)
    places = []
    axes = ("sample", "token", "channel") if theirs.ndim == 3 else ("sample", "class")
    for axis, noun in enumerate(axes[: theirs.ndim]):
        bad = np.flatnonzero(wrong.any(axis=tuple(other for other in range(theirs.ndim) if other != axis)))
        if 0 < len(bad) < theirs.shape[axis]:
            shown = ", ".join(map(str, bad[:6])) + (", ..." if len(bad) > 6 else "")
            places.append(f"{noun}{'s' if len(bad) > 1 else ''} {shown} of {theirs.shape[axis]}")
    return f", in {' and '.join(places)} only" if places else ""
