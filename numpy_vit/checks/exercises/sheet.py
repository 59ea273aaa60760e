"""The learner's file: a layer's forward, the shapes, and an empty backward."""

from __future__ import annotations

import ast
import inspect
import textwrap
from types import ModuleType
from typing import Any, TypeGuard

import numpy as np

from numpy_vit import tree
from numpy_vit.checks import catalogue
from numpy_vit.checks.case import Case

_STUB = '''def backward({signature}):
    """{answer}

{shapes}
    """
    raise NotImplementedError("your turn")
'''


def sheet(name: str) -> str:
    """Return the text of the file in which the backward of a layer is to be written.

    Forward and what it calls are the package's own; what only backward uses is left out.

    Parameters
    ----------
    name : of a layer
    """
    layer, case = catalogue.module(name), catalogue.cases(name)[0]
    source = inspect.getsource(layer)
    nodes = ast.parse(source).body
    kept = _needed(nodes)
    summary = inspect.getdoc(layer) or ""
    parts = [_heading(name, summary.splitlines()[0])]
    parts.append("\n".join(_import_lines(layer, source, nodes, kept)))
    groups = [
        _text(source, node) for node in nodes if isinstance(node, ast.Assign | ast.AnnAssign) and _name(node) in kept
    ]
    if groups:
        parts.append("\n".join(groups))
    functions = [_text(source, node) for node in nodes if isinstance(node, ast.FunctionDef) and node.name in kept]
    return "\n\n\n".join(["\n\n".join(parts), *functions, _stub(layer, case)])


def _heading(name: str, summary: str) -> str:
    return (
        f'"""Exercise: the backward of {name}.\n\n{textwrap.fill(summary, 110)}\n\n'
        f"Write `backward`, then: numpy-vit exercise {name} --check THIS_FILE\n"
        'The cache is what `forward` packs; you may pack other things, as long as y stays what it is.\n"""\n\n'
        "# ruff: noqa: F401, I001, RUF100\n"
        "from __future__ import annotations"
    )


def _import_lines(layer: ModuleType, source: str, nodes: list[ast.stmt], kept: set[str]) -> list[str]:
    lines = [
        _text(source, node)
        for node in nodes
        if isinstance(node, ast.Import | ast.ImportFrom) and getattr(node, "module", None) != "__future__"
    ]
    classes = sorted(node.name for node in nodes if isinstance(node, ast.ClassDef) and node.name in kept)
    return lines + ([f"from {layer.__name__} import {', '.join(classes)}"] if classes else [])


def _needed(nodes: list[ast.stmt]) -> set[str]:
    """The names of the module that forward uses, itself or through what it calls."""
    defined = {_name(node): node for node in nodes if _name(node)}
    found, open_ends = set(), ["forward"]
    while open_ends:
        name = open_ends.pop()
        if name in found or name not in defined or name in ("init", "backward"):
            continue
        found.add(name)
        open_ends += [node.id for node in ast.walk(defined[name]) if isinstance(node, ast.Name)]
    return found


def _name(node: ast.stmt) -> str:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return node.name
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return node.target.id
    return ""


def _text(source: str, node: ast.stmt) -> str:
    """A statement's lines as they stand, with a comment behind the last."""
    lines = source.splitlines()[node.lineno - 1 : node.end_lineno]
    return "\n".join(lines)


def _stub(layer: ModuleType, case: Case) -> str:
    arguments = list(inspect.signature(layer.backward).parameters)[:2]
    returned = (inspect.getdoc(layer.backward) or "").splitlines()[0]
    answer = "\n    ".join(textwrap.wrap(returned.split(": forward upside-down")[0].rstrip(".") + ".", 110))
    shapes = textwrap.indent("\n".join(_shapes(layer, case, arguments[0])), "    ")
    optional = _optional(layer)
    return _STUB.format(signature=", ".join([*arguments, *optional]), answer=answer, shapes=shapes)


def _optional(layer: ModuleType) -> list[str]:
    """The further arguments of backward, with their defaults, which the example may use."""
    parameters = list(inspect.signature(layer.backward).parameters.values())[2:]
    return [f"{parameter.name}={_literal(parameter.default)}" for parameter in parameters]


def _literal(default: Any) -> str:
    return default.__name__ if inspect.isfunction(default) else repr(default)


def _shapes(layer: ModuleType, case: Case, upstream: str) -> list[str]:
    """What goes in and what has to come out, in an example."""
    y, cache = case.forward(case.x) if case.params is None else case.forward(case.params, case.x)
    lines = [f"In the example {case.what!r}:", ""]
    lines += [f"x{key} {shape}, and its gradient too" for key, shape in _named(case.x)]
    lines += [f"params{key} {shape}, and its gradient too" for key, shape in _named(case.params)]
    lines += [f"y{key} {shape}, and {upstream} too" for key, shape in _named(y)]
    packed = _packed(layer, cache)
    return [*lines, "", "and the cache:", "", *packed] if packed else lines


def _packed(layer: ModuleType, cache: Any) -> list[str]:
    """The cache's entries under the names that forward's last line gives them, each with its shape or what it is."""
    pairs = [node for node in ast.walk(ast.parse(inspect.getsource(layer.forward))) if _is_pair(node)]
    pairs.sort(key=lambda node: node.lineno)  # an early return, where there is nothing to do, packs less
    entries = pairs[-1].value.elts[1].elts
    return [f"{ast.unparse(entry)} {_described(value)}" for entry, value in zip(entries, cache, strict=True)]


def _is_pair(node: ast.AST) -> TypeGuard[Any]:
    """Whether a statement returns y and a tuple."""
    pair = node.value if isinstance(node, ast.Return) else None
    return isinstance(pair, ast.Tuple) and len(pair.elts) == 2 and isinstance(pair.elts[1], ast.Tuple)


def _described(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return str(value.shape)
    if isinstance(value, ModuleType):
        return f"= {value.__name__}"
    if value is None or isinstance(value, int | float | str):
        return f"= {value!r}"
    if isinstance(value, dict):
        return f"= {{{', '.join(value)}}}"
    if isinstance(value, tuple) and value and all(isinstance(part, int) for part in value):
        return f"= {value}"
    if value == ():
        return "= (), nothing to undo in this example"
    return "= the cache of a simpler layer" if isinstance(value, tuple) else f"of type {type(value).__name__}"


def _named(value: Any) -> list[tuple[str, tuple[int, ...]]]:
    if value is None:
        return []
    if isinstance(value, np.ndarray | float | np.floating):
        return [("", np.shape(value))]
    return [(f".{key}", np.shape(leaf)) for key, leaf in tree.flatten(value).items()]
