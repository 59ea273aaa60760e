"""Comparing our model with a reference, and naming what makes them differ, one cause after the other."""

from __future__ import annotations

from collections.abc import Mapping

from numpy_vit.checks import gradient_causes, input_causes, runs
from numpy_vit.checks.comparison import Cause, Comparison
from numpy_vit.checks.input_causes import Preprocessing
from numpy_vit.checks.judge import Computed, Row, compared, compute, first_difference, port_of
from numpy_vit.checks.port import Port
from numpy_vit.checks.precision import HALVES, PRECISIONS
from numpy_vit.checks.reference import Reference, ReferenceError
from numpy_vit.checks.search import Search
from numpy_vit.tree import Array

MOST_CAUSES = 8
_GRADIENT = "gradient of "
COARSER = {
    "float32": PRECISIONS["float32"],
    "TF32 (torch.backends.cuda.matmul.allow_tf32) or float16": 2.0**-10,
    "bfloat16 (autocast)": PRECISIONS["bfloat16"],
}


def compare(
    port: Port,
    reference: Reference,
    gradients: Mapping[str, Array] | None = None,
    preprocessing: Preprocessing | None = None,
) -> Comparison:
    """Compare a model with a reference; where they differ, find the causes by trying them.

    Parameters
    ----------
    port : our model; its images and upstream gradient are taken from the reference
    reference : what another implementation computed
    gradients : the reference's gradients under our keys, where its own differ
    preprocessing : what the model's pictures should go through, to be compared where the reference has them

    Raises
    ------
    ReferenceError : images or gradients that do not fit the model.
    """
    gradients = dict(reference.gradients if gradients is None else gradients)
    if port.stored is not None:
        gradients.pop("pos_embed", None)  # that of the table before it was resized
    _check(port, reference, gradients)
    port = port_of(port, reference)
    computed = compute(port)
    rows = compared(computed, reference, gradients)
    input_cause, note = input_causes.explain(reference, preprocessing)
    notes = [*([note] if note else []), *_notes(rows, computed, reference, gradients)]
    if noise := runs.difference(reference):
        return Comparison(False, reference.dtype, (noise,), tuple(rows), tuple(notes))
    causes = (*([input_cause] if input_cause else []), *_causes(port, reference, gradients, computed, rows))
    return Comparison(not causes, reference.dtype, causes, tuple(rows), tuple(notes))


def _causes(
    port: Port, reference: Reference, gradients: Mapping[str, Array], computed: Computed, rows: list[Row]
) -> list[Cause]:
    causes: list[Cause] = []
    while (row := first_difference(rows)) and len(causes) < MOST_CAUSES:
        if row.name.startswith(_GRADIENT):
            return [*causes, *gradient_causes.explain(rows, computed, gradients)]
        search = Search(port, reference, row.name, rows, gradients)
        found = search.one()
        if found is None and (coarse := _coarse(row, rows, reference.dtype)):
            return [*causes, coarse]
        found = found or search.two()
        if found is None:
            return [*causes, _unexplained(row, search.tried, reference, computed)]
        causes.append(_cause(row.name, row.gap, found.gap, [(one.name, one.applied, one.says) for one in found.tried]))
        port, computed, rows = found.port, found.computed, found.rows
    return causes


def _cause(tensor: str, before: float, after: float, tried: list[tuple[str, str, str]]) -> Cause:
    names, applied, says = (" and ".join(texts) for texts in zip(*tried, strict=True))
    text = f"With {applied} the difference at {tensor} falls from {before:.1e} to {after:.1e}: {says}."
    return Cause(tensor, names, before, after, text)


def _coarse(first: Row, rows: list[Row], dtype: str) -> Cause | None:
    """Whether a coarser format explains everything: one that somewhere was used without being named."""
    for coarser, unit in COARSER.items():
        factor = unit / PRECISIONS[dtype]
        if factor > 1 and all(row.gap <= factor * row.allowed for row in rows):
            text = (
                f"At {first.name} the difference is {first.gap:.1e}: more than {dtype} explains, but everything "
                f"compared is as near as {coarser} leaves it. Was the reference computed in it?"
            )
            return Cause(first.name, f"computed in {coarser.split()[0]}", first.gap, None, text)
    return None


def _unexplained(row: Row, tried: int, reference: Reference, computed: Computed) -> Cause:
    where = runs.where(reference.outputs[row.name], computed.exact[row.name], row.allowed)
    text = (
        f"At {row.name} the difference is {row.gap:.1e}, where rounding explains {row.allowed:.1e}{where}; none of "
        f"{tried} alternatives explains it."
    )
    return Cause(row.name, "", row.gap, None, text)


def _check(port: Port, reference: Reference, gradients: Mapping[str, Array]) -> None:
    C, (Y, X) = port.config.in_chans, port.config.image
    if reference.images.shape[1:] != (C, Y, X):
        raise ReferenceError(f"the reference's images are {reference.images.shape}, the model takes (B, {C}, {Y}, {X})")
    classes = port.config.num_classes
    if classes and reference.outputs["logits"].shape[1] != classes:
        raise ReferenceError(f"the reference has {reference.outputs['logits'].shape[1]} logits, the model {classes}")
    known = {*port.params, "images"}
    if gradients and not known & gradients.keys():
        raise ReferenceError(
            f"the reference's gradients are named {', '.join(sorted(gradients)[:3])}, ... and none of them is a "
            "parameter of the model: write them under the checkpoint's keys"
        )


def _notes(rows: list[Row], computed: Computed, reference: Reference, gradients: Mapping[str, Array]) -> list[str]:
    notes = []
    names = {row.name for row in rows}
    if other := sorted(set(reference.outputs) - computed.exact.keys()):
        notes.append(f"not compared, since our model has no such tensor: {_listed(other)}")
    if names == {"logits"}:
        notes.append("only the logits were compared: with intermediates the first tensor that differs can be told")
    ours = computed.exact_gradients.keys()
    if not gradients:
        notes.append("no gradients were compared: the reference has none")
    elif missing := sorted(ours - gradients.keys() - {"images"}):
        notes.append(f"gradients that the reference lacks: {_listed(missing)}")
    if gradients and (extra := sorted(gradients.keys() - ours)):
        notes.append(f"gradients of parameters that the model lacks: {_listed(extra)}")
    if reference.dtype in HALVES:
        notes.append(
            f"{reference.dtype} hides differences below about {PRECISIONS[reference.dtype]:.0e} of a tensor, such as "
            "eps and the form of GELU: compare in float32 or float64 to see them"
        )
    if len(reference.images) == 1:
        notes.append("one image cannot show whether samples of a batch are mixed up: use two or more")
    return notes


def _listed(names: list[str]) -> str:
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
