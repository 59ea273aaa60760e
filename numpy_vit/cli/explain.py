"""numpy-vit explain."""

from __future__ import annotations

import argparse
import inspect
from types import ModuleType
from typing import Any

from numpy_vit.cli.usage import usage

_EXAMPLES = """examples:
  numpy-vit explain               the layers, in the order in which to read them
  numpy-vit explain layernorm     its derivation, its code, and an example in numbers
"""
_SHOWN = 5  # entries of each array


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "explain",
        help="a layer's derivation, code, and an example in numbers",
        description="Explain a layer: the derivation of its backward, the code of forward and backward, and a small "
        "live example with analytic beside numeric gradients. Without a name: the layers in reading order.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("name", nargs="?", metavar="LAYER", help="which layer")
    parser.set_defaults(run=run, one_blas_thread=True)


def run(args: argparse.Namespace) -> int:
    """Print the list of layers, or one layer's explanation."""
    from numpy_vit.checks import catalogue

    if args.name is None:
        width = max(map(len, catalogue.names()))
        for name in catalogue.names():
            print(f"{name:{width}}  {_summary(catalogue.module(name))}")
        return 0
    with usage():
        layer = catalogue.module(args.name)
    print("\n\n".join([_derivation(args.name, layer), _code(layer), _example(args.name)]))
    return 0


def _summary(module: ModuleType) -> str:
    return (module.__doc__ or "").strip().splitlines()[0]


def _derivation(name: str, layer: ModuleType) -> str:
    title = f"{name}: {_summary(layer)}"
    return f"{title}\n{'=' * len(title)}\n\n{inspect.getdoc(layer.backward)}"


def _code(layer: ModuleType) -> str:
    """Forward and backward, and the functions of the module that they are made of, without docstrings."""
    functions = [
        value for value in vars(layer).values() if inspect.isfunction(value) and value.__module__ == layer.__name__
    ]
    functions.sort(key=lambda function: function.__code__.co_firstlineno)
    shown = [_without_docstring(function) for function in functions if function.__name__ != "init"]
    return "The code\n--------\n\n" + "\n\n".join(shown)


def _without_docstring(function: Any) -> str:
    source = inspect.getsource(function)
    if not function.__doc__:
        return source.rstrip()
    begin = source.index('"""')
    end = source.index('"""', begin + 3) + 3
    return (source[:begin].rstrip() + "\n" + source[end:].lstrip("\n")).rstrip()


def _example(name: str) -> str:
    """The numbers of the layer's first example: analytic and numeric gradients beside each other."""
    import numpy as np

    from numpy_vit.checks import catalogue
    from numpy_vit.checks.side_by_side import side_by_side

    case = catalogue.cases(name)[0]
    title = f"An example: {case.what}"
    lines = [title, "-" * len(title), "", "With a random upstream gradient; some entries of each array:"]
    for row in side_by_side(case, np.random.default_rng(0), _SHOWN):
        lines += ["", f"{row.name} {row.shape}"]
        lines.append(f"  {'entry':8}  " + "  ".join(f"{','.join(map(str, index)):>13}" for index in row.indices))
        for label, numbers in (("value", row.values), ("analytic", row.analytic), ("numeric", row.numeric)):
            lines.append(f"  {label:8}  " + "  ".join(f"{number:13.8f}" for number in numbers))
        lines.append(f"  largest difference {np.abs(row.analytic - row.numeric).max():.1e}")
    return "\n".join(lines)
