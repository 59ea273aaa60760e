"""Time NumPy beside PyTorch and JAX on the same weights: the README's table.

    python scripts/benchmark.py                                  every row and every framework that is installed
    python scripts/benchmark.py --only tiny-step ti16-step --repeats 9 --json benchmark.json
    python scripts/benchmark.py --frameworks torch,shortcut --markdown

Each contender has a process of its own and they take turns; before anything is timed, their logits, losses and
gradients have to agree.  A training row is a whole step with AdamW, in float32, on all cores.  Peak memory is that of
three runs in a fresh process, above its size after its imports.  The machine has to be idle otherwise: where another
process has a core, PyTorch's threads wait for each other, and its times become several times as long.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from contextlib import ExitStack
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from numpy_vit.bench import workloads
from numpy_vit.bench.blas import environment
from numpy_vit.bench.measure import spread
from numpy_vit.bench.protocol import ContenderError, Process
from numpy_vit.bench.race import race
from numpy_vit.bench.workloads import WORKLOADS, Workload
from numpy_vit.cli.usage import cores, positive
from numpy_vit.files import write_bytes
from numpy_vit.views.table import table

CONTENDERS = Path(__file__).resolve().parent / "contenders"
FRAMEWORKS = {  # option: name in the table, script, its options
    "torch": ("torch", "torch_eager.py", ()),
    "shortcut": ("torch, class-token shortcut", "torch_eager.py", ("--variant", "shortcut")),
    "compile": ("torch.compile", "torch_eager.py", ("--variant", "compile")),
    "jax": ("jax", "jax_jit.py", ()),
}
OURS = "numpy_vit"
TOLERANCE = 1e-3  # relative to the largest logit, or to the number; float32 rounds to about 1e-5 here
MEMORY_RUNS = 3


def main() -> int:
    """Run the rows, print the table, write the files."""
    args = _arguments()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    if load > 0.5:
        print(f"note: the machine is busy, its load is {load:.1f}: the times will mean little", file=sys.stderr)
    rows, notes, failures = [], [], []
    for name in args.only or WORKLOADS:
        try:
            row, absent = measure_row(WORKLOADS[name], args.frameworks, args.repeats, args.workers)
        except ContenderError as error:
            failures.append(f"{name}: {error}")
            continue
        rows.append(row)
        notes += [f"{name}: {note}" for note in absent]
    _say("")
    print(markdown(rows) if args.markdown else text(rows))
    for line in [*(f"left out: {note}" for note in notes), *(f"failed: {failure}" for failure in failures)]:
        print(line, file=sys.stderr)
    if args.json:
        found = {
            "machine": {**machine(args.workers), "load_before": load},
            "repeats": args.repeats,
            "rows": rows,
            "left_out": notes,
            "failed": failures,
        }
        write_bytes(args.json, (json.dumps(found, indent=2) + "\n").encode())
    return 1 if failures else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=WORKLOADS, metavar="NAME", help=f"of {', '.join(WORKLOADS)}")
    parser.add_argument("--repeats", type=positive, default=9, metavar="N", help="rounds (default: 9; 7 or more)")
    parser.add_argument("--workers", type=positive, default=cores(), metavar="N", help="threads (default: all cores)")
    parser.add_argument("--frameworks", type=_frameworks, default=list(FRAMEWORKS), help=f"of {','.join(FRAMEWORKS)}")
    parser.add_argument("--json", metavar="FILE", help="write the rows, with their spread")
    parser.add_argument("--markdown", action="store_true", help="print the README's table")
    args = parser.parse_args()
    if args.json and not Path(args.json).resolve().parent.is_dir():
        parser.error(f"there is no folder to write {args.json} to")
    return args


def _frameworks(words: str) -> list[str]:
    names = [name for name in words.split(",") if name]
    if wrong := [name for name in names if name not in FRAMEWORKS]:
        raise argparse.ArgumentTypeError(f"unknown framework {wrong[0]!r}: choose of {','.join(FRAMEWORKS)}")
    return names


def measure_row(
    workload: Workload, frameworks: list[str], repeats: int, workers: int
) -> tuple[dict[str, Any], list[str]]:
    """Return a row of the table, and why frameworks are missing from it.

    Raises
    ------
    ContenderError : the outputs differ, or NumPy's side fails.
    """
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        inputs = Path(folder) / "inputs.npz"
        workloads.write(inputs, workloads.draw(workload))
        running = {OURS: stack.enter_context(start(OURS, workload, inputs, workers))}
        outputs = {OURS: _outputs(running[OURS], folder)}
        absent = []
        for name in frameworks:
            label = FRAMEWORKS[name][0]
            _say(f"{workload.name}: {label} starts")
            process = None
            try:
                process = stack.enter_context(start(name, workload, inputs, workers))
                outputs[label] = _outputs(process, folder)
            except ContenderError as error:  # not installed, or unable: torch.compile wants a compiler
                if process:
                    process.close()
                absent.append(str(error))
                continue
            running[label] = process
        disagreements = [
            line for label, found in outputs.items() if label != OURS for line in compare(outputs[OURS], found, label)
        ]
        if disagreements:
            raise ContenderError("the outputs differ, so nothing is timed: " + "; ".join(disagreements))
        runs = {label: process.run for label, process in running.items()}
        seconds = race(runs, repeats, lambda done, rounds: _say(f"{workload.name}: round {done + 1} of {rounds}"))
        for process in running.values():
            process.close()
        memory = {
            label: peak_memory(name, workload, inputs, workers)
            for label, name in ((OURS, OURS), ("torch", "torch"))
            if label in running
        }
    return summary(workload, seconds, memory), absent


def start(name: str, workload: Workload, inputs: Path, workers: int) -> Process:
    """Start a contender; those that shard get one BLAS thread for each worker, frameworks look after theirs."""
    options = [workload.name, "--inputs", str(inputs), "--workers", str(workers)]
    if name == OURS:
        command = [sys.executable, "-m", "numpy_vit.bench.contender", *options]
        return Process(OURS, command, environment(os.environ, workload.threads(workers)[1]))
    label, script, more = FRAMEWORKS[name]
    env = environment(os.environ, None)
    env["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # else torch.compile starts a process a core
    return Process(label, [sys.executable, str(CONTENDERS / script), *options, *more], env)


def _outputs(process: Process, folder: str) -> dict[str, Any]:
    path = Path(folder) / "outputs.npz"
    process.ask("outputs", file=str(path))
    with np.load(path, allow_pickle=False) as stored:
        return dict(stored)


def compare(ours: dict[str, Any], theirs: dict[str, Any], label: str) -> list[str]:
    """Return a line for each output that differs by more than TOLERANCE."""
    lines = []
    for name, array in ours.items():
        other = theirs[name]
        error = float(np.abs(array - other).max() / np.abs(other).max()) if array.shape == other.shape else np.inf
        if not error <= TOLERANCE:  # NaN is a difference
            lines.append(f"{name} of {label} by {error:.1e}, allowed is {TOLERANCE:.0e}")
    return lines


def peak_memory(name: str, workload: Workload, inputs: Path, workers: int) -> int | None:
    """Return the bytes that a few runs take at their peak, above the size after the imports, in a fresh process."""
    with start(name, workload, inputs, workers) as process:
        for _ in range(MEMORY_RUNS):
            process.run()
        found = process.ask("memory")
    return None if found["peak"] is None else found["peak"] - found["base"]


def summary(workload: Workload, seconds: dict[str, list[float]], memory: dict[str, int | None]) -> dict[str, Any]:
    """Return a row: medians in ms, NumPy's time as a ratio to each framework's, and how the ratios spread by round.

    "ratio" and "spread" are those to PyTorch eager.
    """
    ms = {label: 1000 * spread(values).median for label, values in seconds.items()}
    ours_ms = ms.pop(OURS)
    ratios = {label: ours_ms / theirs for label, theirs in ms.items()}
    spreads = {}
    for label in ms:
        each = spread([ours / theirs for ours, theirs in zip(seconds[OURS], seconds[label], strict=True)])
        spreads[label] = {"min": each.least, "q1": each.lower, "q3": each.upper, "max": each.greatest}
    ours, theirs = memory.get(OURS), memory.get("torch")
    return {
        "name": workload.name,
        "ours_ms": ours_ms,
        "theirs_ms": ms,
        "ratio": ratios.get("torch"),
        "spread": spreads.get("torch"),
        "ratios": ratios,
        "spreads": spreads,
        "peak_memory": {"ours": ours, "torch": theirs, "ratio": ours / theirs if ours and theirs else None},
        "rounds_ms": {label: [1000 * value for value in values] for label, values in seconds.items()},
    }


def cells(row: dict[str, Any], labels: list[str]) -> list[str]:
    """Return a row's cells: times in ms, the ratios with their quartiles, memory in MB with its ratio."""
    memory = row["peak_memory"]
    times = [row["ours_ms"], *(row["theirs_ms"].get(label) for label in labels)]
    ratios = [_ratio(row, label) for label in labels]
    megabytes = [_rounded(memory[side], 1e6) for side in ("ours", "torch")]
    both = " / ".join(megabytes) + (f" = {memory['ratio']:.2f}" if memory["ratio"] else "")
    return [row["name"], *(_rounded(ms, 1) for ms in times), *ratios, both]


def _ratio(row: dict[str, Any], label: str) -> str:
    if label not in row["ratios"]:
        return "-"
    each = row["spreads"][label]
    return f"{row['ratios'][label]:.2f} ({each['q1']:.2f} to {each['q3']:.2f})"


def _rounded(value: float | None, unit: float) -> str:
    return "-" if value is None else f"{value / unit:.0f}"


def header(rows: list[dict[str, Any]]) -> tuple[list[str], list[str]]:
    """Return the frameworks that some row has, and the table's header."""
    labels = [label for label, *_ in FRAMEWORKS.values() if any(label in row["theirs_ms"] for row in rows)]
    ratios = [f"ratio to {label}" for label in labels]
    return labels, ["row", "numpy_vit ms", *(f"{label} ms" for label in labels), *ratios, "peak MB, ours / torch"]


def text(rows: list[dict[str, Any]]) -> str:
    """Return the table for a terminal."""
    labels, names = header(rows)
    return table([cells(row, labels) for row in rows], names, " ".join(["l", *"r" * (len(names) - 1)]))


def markdown(rows: list[dict[str, Any]]) -> str:
    """Return the table for the README."""
    labels, names = header(rows)
    lines = [names, ["---", *["---:"] * (len(names) - 1)], *(cells(row, labels) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def machine(workers: int) -> dict[str, Any]:
    """Return what the numbers were measured on and with."""
    return {
        "processor": _processor(),
        "cores": cores(),
        "workers": workers,
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in ("numpy", "torch", "timm", "jax")},
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text("utf-8", "replace").splitlines() if info.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _say(what: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[2K{what}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("\nbenchmark: interrupted")
