"""Where in a pickled object its tensors are: a name for each.

Members of containers are joined by "/", attributes of objects by ".", and a torch.nn.Module's three dicts are
passed over, so that a whole module, pickled or TorchScript, has the names of its state_dict:

    {"model": {"norm.weight": tensor}, "steps": [tensor]}   model/norm.weight, steps/0
    {"model": Module()}                                     model/norm.weight
    Module()                                                norm.weight
    tensor                                                  the empty text
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from numpy_vit.checkpoints.pickles import Record
from numpy_vit.checkpoints.sources import BrokenFileError, Budget

_MODULE = ("_parameters", "_buffers", "_modules")
_STEP = 128  # bytes that a key and its place in the result take besides the text


def leaves(root: Any, is_leaf: Callable[[Any], bool], budget: Budget) -> Iterator[tuple[str, Any]]:
    """Yield each leaf with its path; one that has several paths comes several times.

    A container within itself is passed over.  Some bytes can make containers with 2**n paths: those that lead to
    no leaf are not walked, the others count.

    Raises
    ------
    BrokenFileError : two leaves with the same path, or too many paths for `budget`.
    """
    if is_leaf(root):
        yield "", root
    if is_leaf(root) or not isinstance(root, (list, tuple, Record)):
        return
    useful = _towards_leaves(root, is_leaf)
    seen: set[str] = set()
    above = {id(root)}
    chosen: dict[int, list[tuple[str, str, Any]]] = {}  # so that a second visit does not look at the rest again

    def towards(node: Any) -> Iterator[tuple[str, str, Any]]:
        if id(node) not in chosen:
            chosen[id(node)] = [child for child in _children(node) if id(child[2]) in useful]
        return iter(chosen[id(node)])

    stack = [("", ".", root, towards(root))]
    while stack:
        path, reached, node, children = stack[-1]
        for separator, name, child in children:
            budget.charge(_STEP + len(path) + len(name))
            if id(child) in above:
                continue
            # The first attribute after a container's member is separated from it as the member is.
            inner = f"{path}{'/' if reached == '/' else separator}{name}" if path else name
            if not is_leaf(child):
                above.add(id(child))
                stack.append((inner, separator, child, towards(child)))
                break
            if inner in seen:
                raise BrokenFileError(f"two of its tensors have the path {inner!r:.100}")
            seen.add(inner)
            yield inner, child
        else:
            above.discard(id(node))
            stack.pop()


def _towards_leaves(root: Any, is_leaf: Callable[[Any], bool]) -> set[int]:
    """Return the ids of all leaves and of what they can be reached from; each node is looked at once."""
    owners: dict[int, list[int]] = {id(root): []}
    found: list[int] = []
    pending = [root]
    while pending:
        node = pending.pop()
        for _, _, child in _children(node):
            if is_leaf(child):
                found.append(id(child))
            elif not isinstance(child, (list, tuple, Record)):
                continue
            elif id(child) not in owners:
                pending.append(child)
            owners.setdefault(id(child), []).append(id(node))
    useful: set[int] = set()
    while found:
        node_id = found.pop()
        if node_id not in useful:
            useful.add(node_id)
            found.extend(owners[node_id])
    return useful


def _children(node: Any) -> Iterator[tuple[str, str, Any]]:
    """Yield the separator, the name and the value of everything in a container or an object."""
    if isinstance(node, (list, tuple)):
        for index, child in enumerate(node):
            yield "/", str(index), child
        return
    for index, child in enumerate(node.args):
        yield "/", str(index), child
    for index, child in enumerate(node.items, len(node.args)):
        yield "/", str(index), child
    for index, key in _last_of_each(node.pairs):
        yield "/", key, node.pairs[index][1]
    state = node.state
    if state is None:
        return
    # An object with slots has a pair for its state: the attributes of its dict, and those of its slots.
    parts = state if isinstance(state, tuple) and len(state) == 2 else (state,)
    if not all(part is None or _is_dict(part) for part in parts):
        yield ".", "state", state
        return
    for part in parts:
        if part is not None:
            yield from _attributes(part)


def _attributes(state: Record) -> Iterator[tuple[str, str, Any]]:
    chosen = _last_of_each(state.pairs)
    names = {key for _, key in chosen}
    for index, key in chosen:
        value = state.pairs[index][1]
        if names.issuperset(_MODULE) and key in _MODULE and _is_dict(value):
            for inner, name in _last_of_each(value.pairs):
                yield ".", name, value.pairs[inner][1]
        else:
            yield ".", key, value


def _is_dict(value: Any) -> bool:
    return isinstance(value, Record) and value.name == "dict" and not value.args


def _last_of_each(pairs: Any) -> list[tuple[int, str]]:
    """Return the place and the name of each key of a dict; of two equal keys the last counts, as in Python."""
    chosen: dict[str, int] = {}
    for index, (key, _) in enumerate(pairs):
        # 1 and "1" are two keys, which would have one path: `leaves` refuses that, so only texts are replaced.
        chosen[f"s{key}" if isinstance(key, str) else f"{type(key).__name__} {_name(key, index)}"] = index
    return [(index, _name(pairs[index][0], index)) for index in chosen.values()]


def _name(key: Any, index: int) -> str:
    """Return what to call a key; what is no simple value is called by its place."""
    if isinstance(key, str):
        return key
    if isinstance(key, bytes):
        return key.decode("latin1")
    if key is None or isinstance(key, (bool, float)) or (isinstance(key, int) and abs(key) < 2**64):
        return str(key)
    if isinstance(key, tuple) and len(key) <= 8 and all(isinstance(part, (str, int, float)) for part in key):
        return f"({', '.join(_name(part, index) for part in key)})"
    return f"key {index}"
