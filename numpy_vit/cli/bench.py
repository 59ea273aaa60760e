"""numpy-vit bench."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Collection
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
  numpy-vit bench                      all rows, a few minutes
  numpy-vit bench tiny-step --repeats 9 --json tiny.json
  numpy-vit bench --scaling            the time by batch, tokens and workers
"""


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "bench",
        help="images/s, GFLOP/s, memory, and the time of each layer",
        description="Time training steps with AdamW and inference in float32: images/s, GFLOP/s and their share of "
        "this machine's matrix products, peak memory above the size after imports, what gradients and optimizer take "
        "of a step, and each layer's forward and backward. Medians of several runs; the spread is from the first to "
        "the third quartile.",
        epilog=_EXAMPLES,
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
    if args.json and Path(args.json).is_dir():
        raise UsageError(f"{args.json} is a folder: name a file for --json")
    workers = args.workers or cores()
    progress = Progress()
    if args.scaling:
        rows = _scaling(workers, args.repeats, progress)
        progress.print(_scaling_text(rows))
    else:
        rows = [_row(WORKLOADS[name], workers, args.repeats, progress) for name in args.names or WORKLOADS]
        halves = [_halves_text(rows)] if any(row["step_seconds"] for row in rows) else []
        progress.print("\n\n".join([_rows_text(rows), *halves, *map(_layers_text, rows)]))
    if args.json:
        found = {"workers": workers, "repeats": args.repeats, "scaling" if args.scaling else "rows": rows}
        write_bytes(args.json, (json.dumps(found, indent=2) + "\n").encode())
    return 0


def _start(workload: Workload, workers: int, *options: str) -> Process:
    from numpy_vit.bench.blas import environment
    from numpy_vit.bench.protocol import Process

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
        halves = process.ask("halves") if workload.training else None
        layers = process.ask("layers")
    times = spread(seconds)
    quartiles = times.least, times.lower, times.upper, times.greatest
    flops = workload.flop / times.median
    return {
        "name": workload.name,
        "threads": dict(zip(("ours", "blas"), workload.threads(workers), strict=True)),
        "ms": 1000 * times.median,
        "spread_ms": {name: 1000 * value for name, value in zip(("min", "q1", "q3", "max"), quartiles, strict=True)},
        "images_per_second": workload.batch / times.median,
        "flop": workload.flop,
        "gflops": flops / 1e9,
        "gemm_peak_gflops": peak / 1e9,
        "share_of_peak": flops / peak,
        "peak_memory": None if memory["peak"] is None else memory["peak"] - memory["base"],
        "step_seconds": halves,
        "layers_seconds": layers,
    }


def _rows_text(rows: list[dict[str, Any]]) -> str:
    columns = {
        "row": "{name}",
        "ms": "{ms:.1f}",
        "spread": "{spread_ms[q1]:.1f} to {spread_ms[q3]:.1f}",
        "images/s": "{images_per_second:.1f}",
        "GFLOP/s": "{gflops:.1f}",
        "of GEMM": "{share_of_peak:.1%}",
        "peak MB": "{megabytes}",
    }
    peaks = [row["peak_memory"] for row in rows]
    megabytes = ["-" if peak is None else f"{peak / 1e6:.0f}" for peak in peaks]
    return _columns([{**row, "megabytes": peak} for row, peak in zip(rows, megabytes, strict=True)], columns)


def _columns(rows: list[dict[str, Any]], columns: dict[str, str]) -> str:
    """Set rows in a table; a column has its header and the format of a row's cell."""
    from numpy_vit.views.table import table

    cells = [[cell.format(**row) for cell in columns.values()] for row in rows]
    return table(cells, list(columns), _align(columns))


def _align(header: Collection[str]) -> str:
    return " ".join(["l", *"r" * (len(header) - 1)])


def _halves_text(rows: list[dict[str, Any]]) -> str:
    """Show what the gradients and the optimizer take of the training steps, with all workers."""
    from numpy_vit.views.table import table

    cells = []
    for row in rows:
        if row["step_seconds"]:
            gradients, optimizer, total = (row["step_seconds"][part] for part in ("gradients", "optimizer", "total"))
            parts = gradients, optimizer, total - gradients - optimizer
            cells.append([row["name"], *(text for part in parts for text in _with_share(part, total))])
    header = ["training step", "gradients ms", "share", "optimizer ms", "share", "the rest ms", "share"]
    return table(cells, header, _align(header))


def _with_share(seconds: float, total: float) -> tuple[str, str]:
    """Return "12.3", milliseconds, and "45.6%"."""
    return f"{1000 * seconds:.1f}", f"{seconds / total:.1%}"


def _layers_text(row: dict[str, Any]) -> str:
    """Show a row's layers with one thread of ours, those that take longest first."""
    from numpy_vit.views.table import table

    layers = row["layers_seconds"]
    forward, backward, beside, total = (layers[part] for part in ("forward", "backward", "beside", "total"))
    both = {name: forward.get(name, 0.0) + backward.get(name, 0.0) for name in {**forward, **backward}}
    shown = [name for name in sorted(both, key=lambda name: -both[name]) if both[name] >= _LEAST_SHARE * total]
    rest = [name for name in both if name not in shown]
    parts = {name: [name] for name in shown} | ({"other layers": rest} if rest else {})
    lines = [
        [label, sum(forward.get(name, 0.0) for name in names), sum(backward.get(name, 0.0) for name in names)]
        for label, names in parts.items()
    ]
    cells = [
        [label, *(f"{1000 * seconds:.1f}" if seconds else "-" for seconds in (f, b)), *_with_share(f + b, total)]
        for label, f, b in lines
    ]
    outside = {**beside, "the rest": total - sum(both.values()) - sum(beside.values())}
    cells += [[label, "-", "-", *_with_share(seconds, total)] for label, seconds in outside.items()]
    blas = row["threads"]["blas"]
    where = "in one thread" if blas == 1 else f"in {blas} threads of BLAS"
    head = f"{row['name']}, layer by layer {where}, {1000 * total:.1f} ms"
    header = ["layer", "forward ms", "backward ms", "both ms", "share"]
    return f"{head}\n\n{table(cells, header, _align(header))}"


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
    columns = {name: f"{{{name}}}" for name in ("varied", "batch", "tokens", "workers")}
    columns |= {"ms": "{ms:.1f}", "ms/image": "{ms_per_image:.2f}", "time x": "{factor:.2f}", "speed x": "{speed:.2f}"}
    return _columns([{**row, "speed": 1 / row["factor"]} for row in rows], columns)
