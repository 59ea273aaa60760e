"""numpy-vit bench."""

from __future__ import annotations

import argparse
import json
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy_vit.cli.progress import Progress
from numpy_vit.cli.usage import UsageError, add_workers, cores, positive

if TYPE_CHECKING:
    from numpy_vit.bench.protocol import Process
    from numpy_vit.bench.workloads import Workload

_LEAST_SHARE = 0.01  # layers that take less are shown together
_EXAMPLES = """examples:
  numpy-vit bench                              all rows, a few minutes
  numpy-vit bench tiny-step --repeats 9 --json tiny.json
  numpy-vit bench --scaling                    how the time grows with batch and tokens, and falls with workers
"""


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "bench",
        help="images/s, GFLOP/s, memory, and the time of each layer",
        description="Time training steps with AdamW and inference in float32: images/s, GFLOP/s and their share of "
        "this machine's matrix products, peak memory above the size after imports, and each layer's forward and "
        "backward. Medians of several runs; the spread is from the first to the third quartile.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="the rows (default: all)")
    parser.add_argument("--repeats", type=positive, default=7, metavar="N", help="runs that count (default: 7)")
    parser.add_argument("--json", metavar="FILE", help="also write everything as JSON")
    parser.add_argument("--scaling", action="store_true", help="vary batch, tokens and workers instead of the rows")
    add_workers(parser)
    parser.set_defaults(run=run, one_blas_thread=False)


def run(args: argparse.Namespace) -> int:
    """Run each row in a process of its own, and print."""
    from numpy_vit.bench.workloads import WORKLOADS
    from numpy_vit.files import write_bytes

    if wrong := [name for name in args.names if name not in WORKLOADS]:
        raise UsageError(f"unknown row {wrong[0]!r}: choose of {', '.join(WORKLOADS)}")
    if args.names and args.scaling:
        raise UsageError("--scaling varies the tiny step: leave out the names")
    if args.json and not Path(args.json).resolve().parent.is_dir():
        raise UsageError(f"there is no folder to write {args.json} to")
    workers = args.workers or cores()
    progress = Progress()
    if args.scaling:
        rows = _scaling(workers, args.repeats, progress)
        progress.print(_scaling_text(rows))
    else:
        rows = [_row(WORKLOADS[name], workers, args.repeats, progress) for name in args.names or WORKLOADS]
        progress.print("\n\n".join([_rows_text(rows), *map(_layers_text, rows)]))
    if args.json:
        found = {"workers": workers, "repeats": args.repeats, "scaling" if args.scaling else "rows": rows}
        write_bytes(args.json, (json.dumps(found, indent=2) + "\n").encode())
    return 0


def _start(workload: Workload, workers: int, *options: str) -> Process:
    from numpy_vit.bench.protocol import Process, environment

    command = [sys.executable, "-m", "numpy_vit.bench.contender", workload.name, "--workers", str(workers), *options]
    return Process(workload.name, command, environment(os.environ, workload.threads(workers)[1]))


def _row(workload: Workload, workers: int, repeats: int, progress: Progress) -> dict[str, Any]:
    from numpy_vit.bench.measure import spread
    from numpy_vit.bench.race import race

    progress.line(f"{workload.name}: starts")
    with _start(workload, workers) as process:

        def show(done: int, rounds: int) -> None:
            progress.line(f"{workload.name}: run {done + 1} of {rounds}")

        seconds = race({workload.name: process.run}, repeats, show)[workload.name]
        memory = process.ask("memory")
        peak = process.ask("gemm")["flops"]
        layers = process.ask("layers")
    times = spread(seconds)
    flops = workload.flop / times.median
    return {
        "name": workload.name,
        "ms": 1000 * times.median,
        "spread": {"min": times.least, "q1": times.lower, "q3": times.upper, "max": times.greatest},
        "images_per_second": workload.batch / times.median,
        "flop": workload.flop,
        "gflops": flops / 1e9,
        "gemm_peak_gflops": peak / 1e9,
        "share_of_peak": flops / peak,
        "peak_memory": None if memory["peak"] is None else memory["peak"] - memory["base"],
        "layers": layers,
    }


def _rows_text(rows: list[dict[str, Any]]) -> str:
    from numpy_vit.views.table import table

    cells = [
        [
            row["name"],
            f"{row['ms']:.1f}",
            f"{1000 * row['spread']['q1']:.1f} to {1000 * row['spread']['q3']:.1f}",
            f"{row['images_per_second']:.1f}",
            f"{row['gflops']:.1f}",
            f"{row['share_of_peak']:.1%}",
            "-" if row["peak_memory"] is None else f"{row['peak_memory'] / 1e6:.0f}",
        ]
        for row in rows
    ]
    header = ["row", "ms", "spread", "images/s", "GFLOP/s", "of GEMM peak", "peak MB"]
    return table(cells, header, "l r r r r r r")


def _layers_text(row: dict[str, Any]) -> str:
    """Show a row's layers with one worker, those that take longest first."""
    from numpy_vit.views.table import table

    forward, backward, total = (row["layers"][part] for part in ("forward", "backward", "total"))
    both = {name: forward.get(name, 0.0) + backward.get(name, 0.0) for name in {**forward, **backward}}
    shown = [name for name in sorted(both, key=lambda name: -both[name]) if both[name] >= _LEAST_SHARE * total]
    rest = [name for name in both if name not in shown]
    parts = {name: [name] for name in shown} | ({"other layers": rest} if rest else {})
    lines = [
        [label, sum(forward.get(name, 0.0) for name in names), sum(backward.get(name, 0.0) for name in names)]
        for label, names in parts.items()
    ]
    cells = [
        [label, *(f"{1000 * seconds:.1f}" if seconds else "-" for seconds in (f, b, f + b)), f"{(f + b) / total:.1%}"]
        for label, f, b in lines
    ]
    outside = total - sum(both.values())
    cells.append(["outside layers", "-", "-", f"{1000 * outside:.1f}", f"{outside / total:.1%}"])
    head = f"{row['name']}, layer by layer in one thread, {1000 * total:.1f} ms"
    header = ["layer", "forward ms", "backward ms", "both ms", "share"]
    return f"{head}\n\n{table(cells, header, 'l r r r r')}"


def _scaling(workers: int, repeats: int, progress: Progress) -> list[dict[str, Any]]:
    from numpy_vit.bench import scaling
    from numpy_vit.bench.race import race
    from numpy_vit.bench.workloads import WORKLOADS

    every = dict.fromkeys(point for points in scaling.points(workers).values() for point in points)
    with ExitStack() as stack:
        runs = {}
        for point in every:
            progress.line(
                f"{scaling.NAME}: batch {point.batch}, side {point.image_size}, workers {point.workers}: starts"
            )
            sizes = ["--batch", str(point.batch), "--image-size", str(point.image_size)]
            process = stack.enter_context(_start(WORKLOADS[scaling.NAME], point.workers, *sizes))
            runs[point] = process.run
        seconds = race(runs, repeats, lambda done, rounds: progress.line(f"round {done + 1} of {rounds}"))
    return scaling.rows(workers, seconds)


def _scaling_text(rows: list[dict[str, Any]]) -> str:
    from numpy_vit.views.table import table

    cells = [
        [
            row["varied"],
            *(str(row[name]) for name in ("batch", "tokens", "workers")),
            f"{row['ms']:.1f}",
            f"{row['ms_per_image']:.2f}",
            f"{row['factor']:.2f}",
            f"{1 / row['factor']:.2f}",
        ]
        for row in rows
    ]
    header = ["varied", "batch", "tokens", "workers", "ms", "ms/image", "time x", "speed x"]
    return table(cells, header, "l r r r r r r r")
