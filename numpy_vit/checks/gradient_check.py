"""Whether a backward is the derivative of its forward: `gradcheck`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from numpy_vit import tree
from numpy_vit.checks.agreement import Tolerance, along_directions, entry_by_entry
from numpy_vit.checks.diagnosis import Evidence, diagnose, finding
from numpy_vit.checks.numerical import EPS, contributions
from numpy_vit.checks.report import EVERYTHING, NOT_CHECKED, OK, WRONG, Report, Row
from numpy_vit.checks.subject import (
    ContractError,
    Subject,
    batch_size,
    check_outputs,
    check_unwritten,
    flaw,
    is_float,
    is_input,
    named,
    prepare,
    sample_of_output,
    snapshot,
    vector,
)
from numpy_vit.tree import Array

MOST_ENTRIES = 2000  # of a wrong array that the diagnosis looks at
MOST_FINDINGS = 4  # wrong arrays that the diagnosis looks at


def gradcheck(
    forward: Callable[..., Any],
    backward: Callable[..., Any],
    params: Any,
    x: Any,
    *,
    upstream: Any = None,
    directions: int | None = None,
    rng: np.random.Generator | None = None,
    rtol: float = 1e-9,
    atol: float = 0.0,
    name: str = "layer",
) -> Report:
    """Compare a hand-derived backward with the numeric derivative of its forward, in float64.

    Parameters
    ----------
    forward : forward(params, x) -> (y, cache); with params=None forward(x) -> (y, cache).
        It must answer the same each time: a layer that draws random numbers gets its generator made anew inside,
        ``lambda x: dropout.forward(x, 0.1, np.random.default_rng(0))``.
    backward : backward(dy, cache) -> (dx, grads); with params=None backward(dy, cache) -> dx.
        A dx of None, or a None in its tree, says that there is no input gradient: reported as not checked.
    params : a tree (nested dicts and lists) of arrays, or None.
    x : an array or a tree (tuples, lists, dicts) of arrays.  Floating arrays are copied to float64 and
        differentiated, others are handed on and their gradients ignored.  The batch is the first axis.
    upstream : dy, of the structure of y (a tree as well, or a number for a scalar loss); None draws it, normal.
    directions : None checks every entry of every array, for up to some thousand entries; k checks k random
        unit directions for each array and one over everything at once, for whole models.
    rng : draws upstream and directions; None means `np.random.default_rng(0)`.
    rtol : the relative error allowed.
    atol : an absolute error that is always allowed, beyond the noise of the numeric derivative itself.
    name : stands at the head of the report.

    Returns
    -------
    Report : `ok`, a row for each array, the worst entry and, where something is wrong, a diagnosis in words.
        The relative error is |a - n| / max(|a|, |n|, noise / rtol): the noise is estimated from float64's
        rounding and, where the two disagree, measured (`numerical.refine`), so that a gradient that is truly
        zero passes.  A difference beyond both rtol and the noise never does.

    Raises
    ------
    TypeError : forward or backward do not answer pairs; complex inputs.
    ValueError : an upstream that does not fit y, or directions < 1.

    Examples
    --------
    >>> import numpy as np
    >>> from numpy_vit.checks import gradcheck
    >>> def forward(params, x):
    ...     return x @ params["weight"].T, (params["weight"], x)
    >>> def backward(dy, cache):
    ...     weight, x = cache
    ...     return dy @ weight, {"weight": dy.T @ x / len(x)}  # divided once too often
    >>> rng = np.random.default_rng(1)
    >>> found = gradcheck(forward, backward, {"weight": rng.normal(size=(3, 2))}, rng.normal(size=(4, 2)))
    >>> found.ok
    False
    >>> print(found.diagnosis)
    params.weight is 4 times too small (a factor of 1/4): divided by the batch size
    the input gradient is right while these are wrong: params.weight
    """
    if directions is not None and directions < 1:
        raise ValueError(f"directions must be None or at least 1, not {directions}")
    rng = rng if rng is not None else np.random.default_rng(0)
    layer = prepare(forward, backward, params, x)
    try:
        y, dy, found = _run(layer, upstream, rng)
    except ContractError as error:
        return Report(name, False, (), rtol, str(error))
    rows, gradients = _usable(layer, found)
    v, roundings = _upstream_vector(y, dy), _roundings(layer, dy, gradients)
    tolerance = Tolerance(rtol, atol)
    for key, gradient in gradients.items():
        leaf, rounding = layer.leaves[key], roundings[key]
        if directions is None:
            rows[key] = entry_by_entry(layer.outputs, key, leaf, gradient, rounding, v, tolerance)
        else:
            pair = [(leaf, gradient)]
            rows[key] = along_directions(layer.outputs, key, pair, rounding, v, directions, tolerance, rng)
    if directions is not None and len(gradients) > 1:
        pairs = [(layer.leaves[key], gradient) for key, gradient in gradients.items()]
        rounding = math.hypot(*roundings.values())
        rows[EVERYTHING] = along_directions(layer.outputs, EVERYTHING, pairs, rounding, v, 1, tolerance, rng)
    text = _explain(layer, y, v, rows, gradients)
    return Report(name, not text, tuple(rows.values()), rtol, text)


def _run(layer: Subject, upstream: Any, rng: np.random.Generator) -> tuple[Any, Any, dict[str, Any]]:
    """Run both once and hold them to their contract; return y, dy and the gradients."""
    inputs = layer.inputs()
    before = snapshot(inputs)
    y, cache = layer.run_forward()
    check_outputs(y)
    check_unwritten("forward", before, inputs)
    if not np.array_equal(vector(y), layer.outputs()):
        raise ContractError("forward is not deterministic: make its random generator anew inside forward")
    dy = _draw(y, rng) if upstream is None else _fitting(y, upstream)
    inputs |= named("dy", dy)
    before = snapshot(inputs)
    found = layer.run_backward(dy, cache)
    check_unwritten("backward", before, inputs)
    # Copies, since a gradient may be a view of an input that is about to be moved.
    return y, dy, {key: None if leaf is None else np.array(leaf) for key, leaf in found.items()}


def _upstream_vector(y: Any, dy: Any) -> Array:
    slopes = tree.flatten(dy)
    return vector([slopes[key] for key, leaf in tree.flatten(y).items() if is_float(leaf)])


def _roundings(layer: Subject, dy: Any, gradients: dict[str, Array]) -> dict[str, float]:
    """Return what float64 leaves in an entry of each gradient, in all.

    Terms as large as the largest entry may have been added up: 64 eps of it.  And the backward may cancel badly, as
    LayerNorm's does in a row of nearly equal numbers: what it answers to inputs that differ by a few eps shows that.
    """
    roundings = {key: 64.0 * EPS * float(np.max(np.abs(gradient), initial=0.0)) for key, gradient in gradients.items()}
    starts = {key: leaf.copy() for key, leaf in layer.leaves.items()}
    rng = np.random.default_rng(0)
    for _ in range(2):
        for key, leaf in layer.leaves.items():
            leaf[...] = starts[key] * (1.0 + EPS * rng.integers(-4, 5, leaf.shape))
        again = layer.run_backward(dy, layer.run_forward()[1])
        for key, gradient in gradients.items():
            change = float(np.max(np.abs(again[key] - gradient), initial=0.0))
            roundings[key] = max(roundings[key], 8.0 * change)
    for key, leaf in layer.leaves.items():
        leaf[...] = starts[key]
    return roundings


def _draw(y: Any, rng: np.random.Generator) -> Any:
    def normal(leaf: Any) -> Any:
        if not is_float(leaf):
            return None
        return rng.standard_normal(np.shape(leaf)) if np.ndim(leaf) else float(rng.standard_normal())

    return tree.map(normal, y)


def _fitting(y: Any, upstream: Any) -> Any:
    """Return a float64 copy of `upstream`, whose floating leaves must be those of y."""
    given = named("y", upstream)
    for key, leaf in named("y", y).items():
        if not is_float(leaf):
            continue
        if key not in given or np.shape(given[key]) != np.shape(leaf):
            there = f"shape {np.shape(given[key])}" if key in given else "nothing"
            raise ValueError(f"upstream must be like y: {key} has shape {np.shape(leaf)}, upstream {there}")

    def own(leaf: Any) -> Any:
        if leaf is None:
            return None
        return np.array(leaf, np.float64) if np.ndim(leaf) else float(leaf)

    return tree.map(own, upstream)


def _usable(layer: Subject, found: dict[str, Any]) -> tuple[dict[str, Row], dict[str, Array]]:
    """Return a row for each array, and those gradients that can be compared; their rows are preliminary."""
    verdicts: dict[str, str] = {}
    batch = batch_size(layer.x)
    for key, leaf in layer.inputs().items():
        if key not in layer.leaves:
            verdicts[key] = f"{NOT_CHECKED}: not floating"
        elif key not in found:
            verdicts[key] = "is missing from the gradients"
        elif found[key] is None:
            verdicts[key] = f"{NOT_CHECKED}: backward answers no gradient for it"
        else:
            verdicts[key] = flaw(found[key], leaf, batch) or OK
    for key, gradient in found.items():
        if key not in verdicts and gradient is not None:
            verdicts[key] = "is a gradient of nothing: the inputs have no such array"
    gradients = {key: found[key] for key, verdict in verdicts.items() if verdict == OK}
    rows = {
        key: Row(key, "", None, None, None, 0.0 if verdict.startswith((OK, NOT_CHECKED)) else np.inf, verdict)
        for key, verdict in verdicts.items()
    }
    return rows, gradients


def _explain(layer: Subject, y: Any, v: Array, rows: dict[str, Row], gradients: dict[str, Array]) -> str:
    """Return the diagnosis, "" if all is well; put the worst entry into the rows of wrong directions."""
    if not gradients and all(row.ok for row in rows.values()):
        return "nothing was checked: there is no floating input with a gradient"
    findings = {key: row.verdict for key, row in rows.items() if not row.ok}
    if len(findings) > 1:
        findings.pop(EVERYTHING, None)  # it only repeats them
    elif findings.get(EVERYTHING) == WRONG:
        findings[EVERYTHING] = "is wrong along a direction, although each array alone is right"
    wrong = [key for key, verdict in findings.items() if verdict == WRONG and key in gradients]
    for key in wrong[:MOST_FINDINGS]:
        evidence = _gather(layer, y, v, key, gradients[key])
        findings[key] = finding(evidence)
        if rows[key].index is None and evidence.complete:
            gap = np.abs(evidence.analytic - evidence.numeric)
            index = tuple(int(i) for i in np.unravel_index(np.argmax(gap), gap.shape))
            numbers = float(evidence.analytic[index]), float(evidence.numeric[index])
            rows[key] = replace(rows[key], index=index, analytic=numbers[0], numeric=numbers[1])
    return diagnose(findings, [key for key in gradients if rows[key].ok])


def _gather(layer: Subject, y: Any, v: Array, key: str, gradient: Array) -> Evidence:
    """Compute the numeric gradient of one array entry by entry, or at some of the entries of a large one."""
    leaf, batch = layer.leaves[key], batch_size(layer.x)
    complete = leaf.size <= MOST_ENTRIES
    places = range(leaf.size) if complete else range(0, leaf.size, leaf.size // (MOST_ENTRIES // 4))
    indices = [tuple(int(i) for i in np.unravel_index(place, leaf.shape)) for place in places]
    sample = sample_of_output(y, batch)
    whole = sample is None
    group, groups = (np.zeros(v.size, int), 1) if sample is None else (sample, batch)
    parts = contributions(layer.outputs, leaf, v, group, groups, indices)
    analytic = np.array([gradient[index] for index in indices])
    if complete:
        parts, analytic = parts.reshape(groups, *leaf.shape), gradient
    twins = [np.asarray(out) for out in tree.flatten(y).values() if np.shape(out) == leaf.shape and is_float(out)]
    twin = twins[0] if twins and is_input(key) else None
    return Evidence(key, analytic, parts.sum(axis=0), None if whole else parts, twin, batch, complete)
