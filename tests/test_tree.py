"""Trees of arrays: names, order, sharing, and the round trips between tree, flat dict and buffer."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from numpy_vit import tree

NAMES = st.sampled_from(["weight", "bias", "attn", "q_norm", "x1"])
LEAVES = st.integers(0, 99).map(lambda value: np.full((value % 3, 2), float(value)))
# Empty dicts have no leaves and cannot come back from a flat dict, so none are drawn.
NODES = st.recursive(
    LEAVES,
    lambda inner: st.dictionaries(NAMES, inner, min_size=1) | st.lists(inner, min_size=1, max_size=12),
    max_leaves=30,
)
TREES = st.dictionaries(NAMES, NODES, min_size=1)


def example() -> tree.Params:
    return {
        "cls": np.array([1.0, 2.0]),
        "blocks": [{"weight": np.array([[3.0], [4.0]])}, {"weight": np.array([[5.0]]), "bias": np.array(6.0)}],
        "empty": {},
    }


def identical(first: object, second: object) -> bool:
    """Whether two trees have the same structure and the very same arrays."""
    if isinstance(first, dict):
        return (
            isinstance(second, dict)
            and list(first) == list(second)
            and all(identical(first[name], second[name]) for name in first)
        )
    if isinstance(first, list):
        return isinstance(second, list) and len(first) == len(second) and all(map(identical, first, second))
    return first is second


def test_flatten_names_leaves_by_path_in_tree_order_and_shares_them():
    params = example()
    flat = tree.flatten(params)
    assert list(flat) == ["cls", "blocks.0.weight", "blocks.1.weight", "blocks.1.bias"]
    flat["blocks.0.weight"][1, 0] = 40.0
    assert params["blocks"][0]["weight"].tolist() == [[3.0], [40.0]]


def test_flatten_of_a_bare_array_and_of_a_tuple():
    array = np.zeros(3)
    assert tree.flatten(array) == {"": array}
    assert list(tree.flatten((array, {"a": array}))) == ["0", "1.a"]
    assert tree.flatten({}) == {}


@given(TREES)
def test_unflatten_is_the_inverse_of_flatten(params):
    assert identical(tree.unflatten(tree.flatten(params)), params)


def test_unflatten_puts_lists_into_numerical_order():
    leaves = [np.array(float(i)) for i in range(12)]
    shuffled = {f"blocks.{i}": leaves[i] for i in (3, 11, 0, 10, 7, 1, 2, 4, 5, 6, 9, 8)}
    assert identical(tree.unflatten(shuffled)["blocks"], leaves)
    gap = tree.unflatten({"blocks.0": leaves[0], "blocks.2": leaves[2]})
    assert gap == {"blocks": {"0": leaves[0], "2": leaves[2]}}  # 1 is missing: not a list


@pytest.mark.parametrize("keys", [("a", "a.b"), ("a.b", "a"), ("c", "a.b.c", "a.b")])
def test_unflatten_refuses_a_key_that_is_leaf_and_node(keys):
    with pytest.raises(ValueError, match="array"):
        tree.unflatten({key: np.zeros(1) for key in keys})


def test_map_meets_the_leaves_of_the_same_path():
    params = example()
    other = tree.map(lambda leaf: 10 * leaf, params)
    other = {name: other[name] for name in reversed(other)}  # another order of the same keys
    total = tree.map(lambda a, b: a + b, params, other)
    assert list(total) == list(params)
    for key, leaf in tree.flatten(params).items():
        np.testing.assert_array_equal(tree.flatten(total)[key], 11 * leaf)
    assert tree.map(lambda a: a + 1, (1, [2])) == (2, [3])


@pytest.mark.parametrize(
    "other",
    [
        {"blocks": [np.zeros(1)]},
        {"cls": np.zeros(1), "blocks": [np.zeros(1)], "more": np.zeros(1)},
        {"cls": np.zeros(1), "blocks": [np.zeros(1), np.zeros(1)]},
    ],
)
def test_map_refuses_trees_that_differ(other):
    with pytest.raises(ValueError, match="trees differ"):
        tree.map(np.add, {"cls": np.zeros(1), "blocks": [np.zeros(1)]}, other)


def test_count():
    assert tree.count(example()) == 2 + 2 + 1 + 1
    assert tree.count({}) == 0


def test_pack_makes_one_buffer_of_which_the_leaves_are_views():
    params = example()
    buffer, packed = tree.pack(params)
    assert buffer.tolist() == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    buffer *= 2
    assert packed["blocks"][1]["weight"].tolist() == [[10.0]]
    packed["blocks"][1]["bias"][...] = -1.0
    assert buffer[-1] == -1.0
    assert params["cls"].tolist() == [1.0, 2.0]  # a copy: the tree that was packed is left alone


def test_pack_in_a_given_order_keeps_the_tree():
    params = example()
    order = ["blocks.1.bias", "blocks.0.weight", "cls", "blocks.1.weight"]
    buffer, packed = tree.pack(params, order)
    assert buffer.tolist() == [6.0, 3.0, 4.0, 1.0, 2.0, 5.0]
    assert list(tree.flatten(packed)) == list(tree.flatten(params))
    for key, leaf in tree.flatten(packed).items():
        np.testing.assert_array_equal(leaf, tree.flatten(params)[key])


@given(TREES)
def test_pack_keeps_every_value(params):
    buffer, packed = tree.pack(params)
    np.testing.assert_array_equal(buffer, np.concatenate([leaf.ravel() for leaf in tree.flatten(params).values()]))
    for key, leaf in tree.flatten(packed).items():
        np.testing.assert_array_equal(leaf, tree.flatten(params)[key])


def test_pack_refuses_several_dtypes_and_wrong_orders():
    params = {"a": np.zeros(1, np.float32), "b": np.zeros(1)}
    with pytest.raises(ValueError, match=r"float32.*float64"):
        tree.pack(params)
    for order in (["cls"], ["cls", "cls"], ["cls", "other"], ["cls", "b", "b"]):
        with pytest.raises(ValueError, match="each of the 2 arrays once"):
            tree.pack({"cls": np.zeros(1), "b": np.zeros(1)}, order)
