"""What every layer and model owes its caller: inputs left alone, dtypes kept, samples apart, the same bits twice."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from numpy_vit import tree
from numpy_vit.checks import catalogue

CASES = [(name, case) for name in catalogue.names() for case in catalogue.cases(name, seed=3)]
every_case = pytest.mark.parametrize(("name", "case"), [pytest.param(*c, id=f"{c[0]}: {c[1].what}") for c in CASES])


def cast(node, dtype):
    return tree.map(lambda leaf: leaf.astype(dtype), node)


def forward(case, params, x):
    return case.forward(x) if case.params is None else case.forward(params, x)


def backward(case, dy, cache):
    """Return dx and the gradients as one tree."""
    answer = case.backward(dy, cache)
    return (answer, {}) if case.params is None else answer


def upstream(y):
    rng = np.random.default_rng(0)

    def slope(leaf):
        dy = rng.standard_normal(np.shape(leaf)).astype(np.asarray(leaf).dtype)
        return dy if dy.ndim else float(dy)

    return tree.map(slope, y)


def bits(node):
    return {key: (np.shape(leaf), np.asarray(leaf).tobytes()) for key, leaf in tree.flatten(node).items()}


def arrays(node, path="cache"):
    """Yield every array and NumPy number inside tuples, lists and dicts, with its path."""
    if isinstance(node, dict):
        node = node.items()
    elif isinstance(node, (tuple, list)):
        node = enumerate(node)
    else:
        if isinstance(node, (np.ndarray, np.generic)):
            yield path, node
        return
    for name, child in node:
        yield from arrays(child, f"{path}[{name}]")


@every_case
def test_inputs_parameters_and_upstream_gradients_are_not_written_to(name, case):
    before = bits((case.params or {}, case.x))
    y, cache = forward(case, case.params, case.x)
    assert bits((case.params or {}, case.x)) == before
    dy = upstream(y)
    slopes = bits(dy)
    backward(case, dy, cache)
    assert bits((case.params or {}, case.x)) == before
    assert bits(dy) == slopes


@every_case
def test_read_only_inputs_will_do(name, case):
    def frozen(leaf):
        leaf = np.array(leaf)
        leaf.flags.writeable = False
        return leaf

    params = None if case.params is None else tree.map(frozen, case.params)
    y, cache = forward(case, params, tree.map(frozen, case.x))
    dy = upstream(y)
    found = backward(case, tree.map(lambda leaf: frozen(leaf) if np.ndim(leaf) else leaf, dy), cache)
    y_again, cache_again = forward(case, case.params, case.x)
    assert bits((y, found)) == bits((y_again, backward(case, dy, cache_again)))


@every_case
def test_float32_stays_float32(name, case):
    params = None if case.params is None else cast(case.params, np.float32)
    y, cache = forward(case, params, cast(case.x, np.float32))
    assert {np.asarray(leaf).dtype for leaf in tree.flatten(y).values()} == {np.dtype(np.float32)}
    found = backward(case, upstream(y), cache)
    wide = {
        path: leaf.dtype
        for path, leaf in arrays({"cache": cache, "gradients": found}, name)
        if leaf.dtype.kind == "f" and leaf.dtype != np.float32
    }
    assert not wide
    exact, _ = forward(case, case.params, case.x)
    tree.map(partial(np.testing.assert_allclose, rtol=2e-4, atol=2e-5), y, exact)  # and it is the same function


@every_case
def test_the_same_bits_twice(name, case):
    y, cache = forward(case, case.params, case.x)
    dy = upstream(y)
    found = backward(case, dy, cache)
    assert bits(backward(case, dy, cache)) == bits(found)  # backward leaves its cache alone
    y_again, cache_again = forward(case, case.params, case.x)
    assert bits(y_again) == bits(y)
    assert bits(backward(case, dy, cache_again)) == bits(found)


def disturb(case):
    """Change the last sample of every input that has the batch's axis."""
    batch = len(tree.flatten(case.x)["" if isinstance(case.x, np.ndarray) else "0"])

    def disturbed(leaf):
        leaf = np.array(leaf)
        if len(leaf) == batch:
            leaf[-1] = 3.0 - leaf[-1][..., ::-1]
        return leaf

    return tree.map(disturbed, case.x), batch


def first_samples(node, batch):
    return {key: leaf[:-1] for key, leaf in tree.flatten(node).items() if len(leaf) == batch}


@every_case
def test_samples_are_independent(name, case):
    y, cache = forward(case, case.params, case.x)
    if not isinstance(y, tuple) and np.ndim(y) == 0:
        pytest.skip("a loss of the whole batch")
    x, batch = disturb(case)
    y_changed, cache_changed = forward(case, case.params, x)
    assert bits(first_samples(y, batch)) == bits(first_samples(y_changed, batch))
    assert bits(y) != bits(y_changed)
    dy = upstream(y)
    dx, _ = backward(case, dy, cache)
    dx_changed, _ = backward(case, dy, cache_changed)
    assert bits(first_samples(dx, batch)) == bits(first_samples(dx_changed, batch))


@pytest.mark.parametrize("name", ["dropout", "drop_path"])
def test_the_examples_drop_something_and_keep_something(name):
    case = catalogue.cases(name)[0]
    y, _ = case.forward(case.x)
    dropped = (y == 0).all(axis=(1, 2)) if name == "drop_path" else y == 0
    assert 0 < dropped.sum() < dropped.size
