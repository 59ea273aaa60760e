"""Comparing tensors one by one: which differ by more than rounding explains, and which is the first."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from numpy_vit.checks.edits import matching
from numpy_vit.checks.port import Flat, Port
from numpy_vit.checks.precision import GRADIENT, HALVES, PRECISIONS, Allowance, distance, largest, rounded
from numpy_vit.checks.reference import Reference
from numpy_vit.tree import Array


@dataclass(frozen=True)
class Row:
    """One tensor of the reference beside ours.

    Parameters
    ----------
    name : "blocks.0.attn", "logits", or "gradient of head.weight"
    shape : of the reference
    max_abs, max_rel : the largest difference of the reference and our model in the same precision (float32 where it
        is a half one), and relative to the largest entry
    scale : that largest entry, or of the terms whose sum the tensor is
    gap : the largest difference of the reference and our model in float64
    reference_units, our_units : how far each lies from our float64 model, in roundings of its dtype at the largest
        entry; our_units is None where the reference is float64 itself
    allowed, allowed_units : what rounding explains, absolutely and of reference_units
    same : whether it does
    """

    name: str
    shape: tuple[int, ...]
    max_abs: float
    max_rel: float
    scale: float
    gap: float
    reference_units: float
    our_units: float | None
    allowed: float
    allowed_units: float
    same: bool

    @property
    def whose(self) -> str:
        """Whose rounding the difference is: "theirs", "ours" or "both"; "" where that is not known."""
        if self.our_units is None or not self.same:
            return ""
        mine = self.our_units
        if self.reference_units > 3 * mine:
            return "theirs"
        return "ours" if mine > 3 * self.reference_units else "both"

    def to_json(self) -> dict[str, Any]:
        """Return the fields; what is infinite or no number becomes None."""
        fields = {**asdict(self), "shape": list(self.shape), "whose_rounding": self.whose}
        return {
            key: None if isinstance(value, float) and not math.isfinite(value) else value
            for key, value in fields.items()
        }


@dataclass(frozen=True)
class Computed:
    """Our tensors in float64 and float32: outputs, gradients, and gradients in the order of our changed weights."""

    exact: Flat
    single: Flat
    exact_gradients: Flat
    single_gradients: Flat
    exact_own: Flat
    single_own: Flat


def port_of(port: Port, reference: Reference) -> Port:
    """Return the port on the reference's images, in float64 but with numbers that the reference's dtype can hold."""
    params = {key: rounded(leaf.astype(np.float64), reference.dtype) for key, leaf in port.params.items()}
    return replace(port, params=params, images=reference.images, upstream=reference.upstream)


def compute(port: Port) -> Computed:
    """Run our model twice."""
    exact, cache = port.outputs(np.float64)
    exact_own = port.own_gradients(cache, np.float64)
    single, cache = port.outputs(np.float32)
    single_own = port.own_gradients(cache, np.float32)
    return Computed(exact, single, port.put_back(exact_own), port.put_back(single_own), exact_own, single_own)


def compared(ours: Computed, reference: Reference, gradients: Mapping[str, Array]) -> list[Row]:
    """Return the rows of what both have, from the input to the logits and back through the gradients.

    Parameters
    ----------
    gradients : the reference's, under our keys
    """
    allowance = Allowance(reference.dtype)
    rows = [
        _row(name, reference.outputs[name], ours.exact[name], ours.single[name], reference.dtype, allowed)
        for name, allowed in _allowed(ours.exact, ours.single, allowance)
        if name in reference.outputs
    ]
    scales = gradient_scales(ours.exact_gradients)
    for key, exact in ours.exact_gradients.items():
        allowed = GRADIENT * allowance.next(exact, ours.single_gradients[key], scales[key])
        if key in gradients:
            beside = [(exact, ours.single_gradients[key])]
            if key in ours.exact_own:  # the port's weight may be rearranged itself, and so its gradient
                beside.append((ours.exact_own[key], ours.single_own[key]))
            name = f"gradient of {key}"
            found = [_row(name, gradients[key], *pair, reference.dtype, allowed, scales[key]) for pair in beside]
            rows.append(next((row for row in found if row.same), found[0]))
    return rows


def _allowed(exact: Flat, single: Flat, allowance: Allowance) -> Iterator[tuple[str, float]]:
    for name, tensor in exact.items():
        yield name, allowance.next(tensor, single[name])


def gradient_scales(gradients: Flat) -> dict[str, float]:
    """Return the magnitude whose rounding a gradient carries: its own, or of what cancels in it.

    The bias of a k norm moves no attention weight, so its gradient is zero: a sum of terms like those of the other
    gradients of the norms of q and k.
    """
    scales = {key: largest(leaf) for key, leaf in gradients.items()}
    for key in matching(r"blocks\.\d+\.attn\.[qk]_norm\.(weight|bias)", gradients):
        block = key.split(".attn.")[0]
        scales[key] = max(
            largest(gradients[f"{block}.attn.{norm}.{part}"])
            for norm in ("q_norm", "k_norm")
            for part in ("weight", "bias")
        )
    return scales


def _row(
    name: str, theirs: Array, exact: Array, single: Array, dtype: str, allowed: float, scale: float | None = None
) -> Row:
    scale = largest(exact) if scale is None else scale
    unit = PRECISIONS[dtype] * scale
    ours = exact if dtype == "float64" else single
    gap, gap_exact = distance(theirs, ours), distance(theirs, exact)
    in_units = gap_exact / unit if unit else (math.inf if gap_exact else 0.0)
    own = distance(single, exact) / (PRECISIONS["float32"] * scale) if scale else 0.0
    if dtype in HALVES:
        own *= PRECISIONS["float32"] / PRECISIONS[dtype]  # on the same scale
    return Row(
        name=name,
        shape=theirs.shape,
        max_abs=gap,
        max_rel=gap / scale if scale else gap,
        scale=scale,
        gap=gap_exact,
        reference_units=in_units,
        our_units=None if dtype == "float64" else own,
        allowed=allowed,
        allowed_units=allowed / unit if unit else 0.0,
        same=gap_exact <= allowed,
    )


def progress(rows: list[Row]) -> int:
    """Return how many rows are the same before the first that differs."""
    return next((i for i, row in enumerate(rows) if not row.same), len(rows))


def first_difference(rows: list[Row]) -> Row | None:
    """Return the first row that differs."""
    return next((row for row in rows if not row.same), None)
