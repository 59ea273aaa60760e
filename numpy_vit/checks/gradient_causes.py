"""What is wrong with gradients where the forward is right."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from numpy_vit.checks.comparison import Cause
from numpy_vit.checks.diagnosis import NO_PATTERN, Evidence, finding
from numpy_vit.checks.judge import Computed, Row
from numpy_vit.checks.precision import distance
from numpy_vit.tree import Array

_PREFIX = "gradient of "
_FIT = 1e-3  # a common factor of the gradients is the same for all of them to this accuracy
_MOST = 5


def explain(rows: list[Row], ours: Computed, gradients: Mapping[str, Array]) -> list[Cause]:
    """Return the causes of gradients that differ: a factor of all of them first, then each in words."""
    causes: list[Cause] = []
    wrong = [row for row in rows if row.name.startswith(_PREFIX) and not row.same]
    keys = [row.name.removeprefix(_PREFIX) for row in wrong]
    compared = [row for row in rows if row.name.startswith(_PREFIX)]
    batch = len(ours.exact["logits"])
    if len(keys) > 1 and (factor := _common_factor(keys[0], keys, ours.exact_gradients, gradients)):
        theirs = gradients[keys[0]]
        before = distance(theirs, ours.exact_gradients[keys[0]])
        after = distance(theirs, factor * ours.exact_gradients[keys[0]])
        text = (
            f"Every gradient of the reference from {keys[0]} on is {factor:.6g} times ours{_of_batch(factor, batch)}; "
            f"with that the difference at the gradient of {keys[0]} falls from {before:.1e} to {after:.1e}."
        )
        causes.append(Cause(wrong[0].name, f"gradients times {factor:.6g}", before, after, text))
        allowed = {row.name.removeprefix(_PREFIX): row.allowed for row in wrong}
        exact = {key: factor * ours.exact_gradients[key] for key in keys}
        keys = [key for key in keys if distance(gradients[key], exact[key]) > max(1, abs(factor)) * allowed[key]]
    else:
        exact = dict(ours.exact_gradients)
    causes += [_one(key, gradients[key], exact[key], batch) for key in keys[:_MOST]]
    if len(keys) == len(compared):
        return causes
    return causes + _rest(keys[_MOST:])


def _rest(keys: list[str]) -> list[Cause]:
    if not keys:
        return []
    text = f"{len(keys)} more gradients differ: {', '.join(keys[:6])}{', ...' if len(keys) > 6 else ''}."
    return [Cause(_PREFIX + keys[0], "", np.inf, None, text)]


def _one(key: str, theirs: Array, ours: Array, batch: int) -> Cause:
    before = distance(theirs, ours)
    if theirs.shape != ours.shape:
        words = f"has the shape {theirs.shape}, the parameter {ours.shape}"
    elif not np.isfinite(theirs).all():
        words = "has entries that are not finite numbers"
    else:
        words = finding(Evidence(key, theirs.astype(np.float64), ours, None, None, batch, True))
    name = "" if words == NO_PATTERN else f"gradient {words}"
    text = f"The reference's gradient of {key} {words}: the difference is {before:.1e}, the forward is the same."
    return Cause(_PREFIX + key, name, before, None, text)


def _common_factor(first: str, keys: list[str], ours: Mapping[str, Array], theirs: Mapping[str, Array]) -> float | None:
    """The factor of the first gradient that differs, if most of the others have it too."""
    factors = {key: factor for key in keys if (factor := _factor(theirs[key], ours[key])) is not None}
    if first not in factors:
        return None
    alike = [key for key, factor in factors.items() if abs(factor / factors[first] - 1) < _FIT]
    return factors[first] if len(alike) > max(1, len(keys) // 2) else None


def _factor(theirs: Array, ours: Array) -> float | None:
    if theirs.shape != ours.shape or not np.isfinite(theirs).all():
        return None
    square = float(np.vdot(ours, ours))
    factor = float(np.vdot(ours, theirs.astype(np.float64))) / square if square else 0.0
    fits = np.linalg.norm(theirs - factor * ours) <= _FIT * np.linalg.norm(theirs)
    return factor if factor and fits else None


def _of_batch(factor: float, batch: int) -> str:
    if abs(factor * batch - 1) < _FIT:
        return f", that is divided by the batch of {batch}: the loss is a mean, or one mean more"
    if abs(factor / batch - 1) < _FIT and batch > 1:
        return f", that is multiplied by the batch of {batch}: the loss is a sum"
    return ""
