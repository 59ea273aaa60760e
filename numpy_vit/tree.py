"""Trees of arrays: nested dicts and lists whose leaves are NumPy arrays.

Parameters, gradients and optimizer states are such trees.  `flatten` names each leaf by its path,
("blocks.0.attn.qkv.weight"), which for a model's parameters are timm's state-dict keys; it shares the arrays,
so whoever works on the flat dict works on the tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
Params: TypeAlias = dict[str, Any]  # a nested dict (lists for blocks) of arrays
Cache: TypeAlias = tuple[Any, ...]  # what a backward needs of its forward


def _children(node: Any) -> Iterable[tuple[str, Any]] | None:
    if isinstance(node, Mapping):
        return node.items()
    if isinstance(node, (list, tuple)):
        return ((str(i), child) for i, child in enumerate(node))
    return None


def _leaves(node: Any, path: str) -> Iterator[tuple[str, Any]]:
    children = _children(node)
    if children is None:
        yield path, node
        return
    for name, child in children:
        yield from _leaves(child, f"{path}.{name}" if path else name)


def flatten(tree: Any) -> dict[str, Array]:
    """Name every leaf by its path, "blocks.0.norm1.weight", in tree order; the arrays are shared.

    A tree that is one bare array has the single key "".  Empty dicts have no leaves and disappear.
    """
    return dict(_leaves(tree, ""))


def unflatten(flat: Mapping[str, Array]) -> Params:
    """Build the tree whose `flatten` is `flat`: a node whose names are 0, 1, ... n-1 becomes a list.

    Raises
    ------
    ValueError : a key is both a leaf and the beginning of another key.
    """
    root: Params = {}
    for key, leaf in flat.items():
        *path, last = key.split(".")
        node = root
        for name in path:
            node = node.setdefault(name, {})
            if not isinstance(node, dict):
                raise ValueError(f"{key!r} lies below a key that is an array itself")
        if last in node:
            raise ValueError(f"{key!r} is both an array and the beginning of another key")
        node[last] = leaf
    return {name: _lists(child) for name, child in root.items()}


def _lists(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    names = set(node)
    if names == {str(i) for i in range(len(node))}:
        return [_lists(node[str(i)]) for i in range(len(node))]
    return {name: _lists(child) for name, child in node.items()}


def map(function: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """Apply `function` to every leaf of `tree` and the leaves of the same path in `others`.

    Empty dicts count for nothing, as in `flatten`: gradients have them where a model lacks an optional layer.

    Raises
    ------
    ValueError : the trees have different keys.
    """
    if _children(tree) is None:
        if wrong := [other for other in others if _children(other) is not None]:
            raise ValueError(f"trees differ: an array and a node with {_names(wrong[0])}")
        return function(tree, *others)
    for other in others:
        if _children(other) is None or _names(other) != _names(tree):
            found = "an array" if _children(other) is None else _names(other)
            raise ValueError(f"trees differ: a node with {_names(tree)} and {found}")
    if isinstance(tree, Mapping):
        return {
            name: child if _empty(child) else map(function, child, *(other[name] for other in others))
            for name, child in tree.items()
        }
    return type(tree)(map(function, *children) for children in zip(tree, *others, strict=True))


def _names(node: Any) -> list[str]:
    return sorted(name for name, child in _children(node) or () if not _empty(child))


def _empty(node: Any) -> bool:
    return isinstance(node, Mapping) and not node


def count(tree: Any) -> int:
    """Return the number of entries in all leaves."""
    return sum(leaf.size for leaf in flatten(tree).values())


def pack(tree: Params, order: Iterable[str] | None = None) -> tuple[Array, Params]:
    """Copy a tree into one flat buffer; return the buffer and the same tree as views of it.

    Parameters
    ----------
    tree : leaves of one dtype.
    order : the keys of `flatten(tree)` in the order in which they shall lie in the buffer (default: tree order).

    Returns
    -------
    buffer : (count(tree),)
    packed : `tree` with every leaf a view of `buffer`; writing to one writes to the other.

    Raises
    ------
    ValueError : leaves of several dtypes, or an `order` that is not a permutation of the keys.
    """
    flat = flatten(tree)
    keys = list(flat) if order is None else list(order)
    if len(keys) != len(flat) or set(keys) != set(flat):
        raise ValueError(f"order must name each of the {len(flat)} arrays once")
    dtypes = {leaf.dtype for leaf in flat.values()}
    if len(dtypes) > 1:
        raise ValueError(f"one buffer holds one dtype, the tree has {sorted(str(d) for d in dtypes)}")
    buffer = np.empty(count(tree), dtypes.pop() if dtypes else np.float32)
    views: dict[str, Array] = {}
    start = 0
    for key in keys:
        stop = start + flat[key].size
        views[key] = buffer[start:stop].reshape(flat[key].shape)
        views[key][...] = flat[key]
        start = stop
    return buffer, unflatten({key: views[key] for key in flat})
