"""numpy-vit exercise."""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy_vit.cli.usage import UsageError, positive, usage

if TYPE_CHECKING:
    from numpy_vit.checks.exercises.judging import Verdict

_TIME_LIMIT = 60.0  # seconds
_EXAMPLES = """examples:
  numpy-vit exercise                                      the exercises, in the order in which to do them
  numpy-vit exercise layernorm                            writes layernorm_exercise.py, with an empty backward
  numpy-vit exercise layernorm --check layernorm_exercise.py
  numpy-vit exercise layernorm --check layernorm_exercise.py --hint 2
"""


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "exercise",
        help="write a layer's backward yourself, and have it judged",
        description="Practise a gradient: get a layer's forward with an empty backward, write it, and be told "
        "whether it is right, or which gradient is wrong and how. Hints follow the derivation, one step at a time. "
        "The file runs in a process of its own. Exit status 1 if something is wrong, 2 if it cannot be judged.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("name", nargs="?", metavar="LAYER", help="which layer; without it: the list")
    parser.add_argument("--check", metavar="FILE", help="judge the backward in this file")
    parser.add_argument("--hint", type=positive, metavar="N", help="with --check: hint number N towards it")
    parser.add_argument("--out", metavar="FILE", help="where the exercise is written (default: LAYER_exercise.py)")
    parser.add_argument(
        "--time-limit", type=_seconds, metavar="SECONDS", help="with --check: for the file to run (default: 60)"
    )
    parser.add_argument("--json", action="store_true", help="with --check: the verdict as one JSON object")
    parser.set_defaults(run=run, one_blas_thread=True)


def run(args: argparse.Namespace) -> int:
    """List, write or judge."""
    from numpy_vit.checks.exercises import tasks

    judging = {"--hint": args.hint, "--time-limit": args.time_limit, "--json": args.json or None}
    given = [option for option, value in judging.items() if value is not None]
    if args.name is None:
        if given or args.check is not None or args.out is not None:
            raise UsageError("name the exercise as well: numpy-vit exercise LAYER --check FILE")
        return _list()
    with usage():
        tasks.check(args.name)
    if args.check is None:
        if given:
            raise UsageError(f"{' and '.join(given)} without a file to judge: name it with --check FILE")
        return _write(args.name, Path(args.out or f"{args.name}_exercise.py"))
    if args.out:
        raise UsageError("--check judges a file and --out writes one: choose one of them")
    return _check(args)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number of seconds")
    return value


def _list() -> int:
    from numpy_vit.checks import catalogue
    from numpy_vit.checks.exercises import steps, tasks

    width = max(map(len, tasks.names()))
    for name in tasks.names():
        layer = catalogue.module(name)
        summary = (layer.__doc__ or "").strip().splitlines()[0]
        count = len(steps.steps(layer))
        print(f"{name:{width}}  {count} step{'s' if count > 1 else ' '}  {summary}")
    return 0


def _write(name: str, path: Path) -> int:
    from numpy_vit.checks.exercises.sheet import sheet
    from numpy_vit.files import write_bytes

    if path.exists():
        raise UsageError(f"{path} exists, perhaps with your work in it: choose another name with --out")
    write_bytes(path, sheet(name).encode())
    print(f"wrote {path}: fill in its backward, then numpy-vit exercise {name} --check {path}")
    return 0


def _check(args: argparse.Namespace) -> int:
    from numpy_vit.checks import catalogue
    from numpy_vit.checks.exercises import process, steps

    verdict, printed = process.judge_file(args.name, args.check, args.time_limit or _TIME_LIMIT)
    if printed:
        print(printed, end="" if printed.endswith("\n") else "\n", file=sys.stderr)
    hints = steps.hints(catalogue.module(args.name), verdict.steps) if verdict.steps else []
    if args.json:
        hint = hints[args.hint - 1] if args.hint and args.hint <= len(hints) else None
        print(json.dumps({**verdict.to_json(), "hint": hint, "hint_count": len(hints)}))
    else:
        print("\n".join([*_found(verdict), *_helped(verdict, hints, args.hint)]))
    return {"right": 0, "broken": 2}.get(verdict.status, 1)


def _found(verdict: Verdict) -> list[str]:
    if verdict.status == "right":
        width = max(map(len, verdict.errors))
        rows = [f"  {gradient:{width}}  {error:.1e}" for gradient, error in verdict.errors.items()]
        return [
            f"{verdict.exercise}: right, in all of the {verdict.gradients} gradients of its examples; "
            "the worst relative error of each:",
            *rows,
        ]
    if verdict.status == "wrong":
        lines = [f"{verdict.exercise}: wrong, in the example {verdict.example}"]
        lines += [f"  {line}" for line in verdict.text.splitlines()]
        if len(verdict.wrong) > 1:
            lines.append(f"begin with {verdict.wrong[0]}: backward finds it first, the others may follow from it")
        return lines
    where = f", in the example {verdict.example}" if verdict.example and verdict.status == "broken" else ""
    return [f"{verdict.exercise}: {verdict.text}{where}"]


def _helped(verdict: Verdict, hints: list[str], asked: int | None) -> list[str]:
    """The one hint that was asked for, and where the next is."""
    if not hints:
        no_step = verdict.status == "wrong" and asked is not None
        return ["no hints: it is no step of the derivation that is wrong"] if no_step else []
    if asked is None:
        return [f"look at step ({verdict.steps[0]}) of the derivation; --hint 1 says more"]
    lines = [f"hint {asked} of {len(hints)}: {hints[asked - 1]}"] if asked <= len(hints) else []
    if asked < len(hints):
        return [*lines, f"--hint {asked + 1} says more"]
    end = "no more hints" if asked == len(hints) else f"no hint {asked}, there are {len(hints)}"
    return [*lines, f"{end}: numpy-vit explain {verdict.exercise} has the whole derivation, and the answer"]
