"""The process in which NumPy runs one row: python -m numpy_vit.bench.contender NAME --workers N.

BLAS reads how many threads it has when NumPy loads, so whoever starts it sets the environment, as
`blas.environment` makes it.  Beyond the protocol's requests it answers

    {"do": "gemm"}     {"flops": FLOP a second of matrix products, in the threads that the row has}
    {"do": "layers"}   {"forward": {layer: seconds}, "backward": {layer: seconds}, "beside": {what: seconds},
                        "total": seconds}, with one worker
    {"do": "halves"}   {"gradients": seconds, "optimizer": seconds, "total": seconds} of a step, with all workers
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace

from numpy_vit.bench import layers, measure, protocol
from numpy_vit.bench.workloads import WORKLOADS, Inputs, Job, Workload, draw, read
from numpy_vit.training.allocator import keep_freed_memory


def parser(description: str | None) -> argparse.ArgumentParser:
    """Return the parser of the options that every contender has."""
    options = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("name", choices=WORKLOADS)
    options.add_argument("--workers", type=int, default=1, metavar="N", help="threads (default: 1)")
    options.add_argument("--inputs", metavar="FILE", help="an .npz of parameters and a batch (default: seeded ones)")
    options.add_argument("--batch", type=int, metavar="N", help="another batch size, for seeded inputs")
    options.add_argument("--image-size", type=int, metavar="N", help="another image side, for seeded inputs")
    return options


def chosen(args: argparse.Namespace) -> Workload:
    """Return the workload that the options name."""
    workload = WORKLOADS[args.name]
    config = replace(workload.config, image_size=args.image_size) if args.image_size else workload.config
    return replace(workload, config=config, batch=args.batch or workload.batch)


def inputs(args: argparse.Namespace, workload: Workload) -> Inputs:
    """Return the inputs that the options name."""
    return read(args.inputs) if args.inputs else draw(workload)


def main(argv: Sequence[str] | None = None) -> int:
    """Serve on the standard streams."""
    keep_freed_memory()
    base = measure.resident_bytes()
    args = parser(__doc__).parse_args(argv)
    workload = chosen(args)
    threads, _ = workload.threads(args.workers)

    def gemm(job: Job) -> protocol.Answer:
        return {"flops": measure.gemm_peak(threads)}

    def by_layer(job: Job) -> protocol.Answer:
        parts = layers.parts_of(layers.loaded_layers()) + layers.BESIDE
        times, total = layers.mean_times(lambda: job.run(workers=1), parts)
        return {"forward": times.forward, "backward": times.backward, "beside": times.beside, "total": total}

    def by_half(job: Job) -> protocol.Answer:
        times, total = layers.mean_times(job.run, layers.HALVES)
        return {**times.beside, "total": total}

    return protocol.serve(
        lambda: Job(workload, inputs(args, workload), threads),
        base, *protocol.standard_streams(), {"gemm": gemm, "layers": by_layer, "halves": by_half},
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
