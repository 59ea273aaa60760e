"""numpy-vit gradcheck."""

from __future__ import annotations

import argparse
import json
from typing import Any

from numpy_vit.cli.usage import natural, usage

_EXAMPLES = """examples:
  numpy-vit gradcheck                     every layer and model
  numpy-vit gradcheck layernorm attention
  numpy-vit gradcheck vit --seed 3 --json
"""


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "gradcheck",
        help="check hand-derived gradients against finite differences",
        description="Check hand-derived gradients against fourth-order finite differences in float64: dx and every "
        "parameter's gradient, entry by entry for layers, in random directions for models. Exit status 1 if one fails.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("names", nargs="*", metavar="LAYER|MODEL", help="what to check (default: everything)")
    parser.add_argument(
        "--seed", type=natural, default=0, help="of parameters, inputs and upstream gradients (default: 0)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line instead of a table")
    parser.set_defaults(run=run, one_blas_thread=True)


def run(args: argparse.Namespace) -> int:
    """Check and print a row each; return 1 if any gradient is wrong."""
    from numpy_vit.checks import catalogue

    with usage():
        names = args.names or catalogue.names()
        found = {name: catalogue.cases(name, args.seed) for name in names}
    layout = f"{{:{max(map(len, names))}}}  {{:42}}  {{:>9}}  {{}}"
    if not args.json:
        print(layout.format("name", "what was checked", "error", "verdict"))
    failures = []
    for name, cases in found.items():
        for case in cases:
            report = _check(case, args.seed)
            row = {"name": name, "case": case.what, "error": report.worst_error, "ok": report.ok}
            if args.json:
                print(json.dumps({**row, "diagnosis": report.diagnosis}), flush=True)
            else:
                print(
                    layout.format(name, case.what, f"{report.worst_error:.1e}", "ok" if report.ok else "WRONG"),
                    flush=True,
                )
            if not report.ok:
                failures.append(f"\n{name}, {case.what}\n{report}")
    if not args.json:
        total = sum(map(len, found.values()))
        print("\n".join(failures) if failures else f"{total} checks: every gradient agrees with finite differences")
    return 1 if failures else 0


def _check(case: Any, seed: int) -> Any:
    import numpy as np

    from numpy_vit.checks import gradcheck

    rng = np.random.default_rng(seed)
    return gradcheck(case.forward, case.backward, case.params, case.x, directions=case.directions, rng=rng)
