"""What numpy-vit inspect shows of a model, as tables and as JSON."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from numpy_vit.cli.progress import counted
from numpy_vit.views import costs, memory, speed
from numpy_vit.views.shapes import Shape, head_width, intermediate_shapes, parameter_shapes
from numpy_vit.views.table import table

_INDEX = re.compile(r"^(.*?)(\d+)(.*)$")


def as_text(tensors: Mapping[str, tuple[Shape, str]], config: Any, estimate: Mapping[str, Any] | None) -> str:
    """Return the tables: tensors, and, where the configuration is known, parts, intermediates, memory and time.

    Parameters
    ----------
    tensors : (shape, dtype) by name; blocks that are alike share a line
    config : a vit.Config, or None for a file that is no known model
    estimate : as of estimates.estimate, where there is a configuration
    """
    rows = [
        [name, _shape(shape), dtype, str(times), f"{times * math.prod(shape):,}"]
        for name, (shape, dtype), times in _alike(tensors)
    ]
    total = f"{sum(math.prod(shape) for shape, _ in tensors.values()):,} values in {len(tensors)} tensors"
    sections = [f"tensors: {total}\n{table(rows, ['name', 'shape', 'dtype', 'times', 'values'], 'l l l r r')}"]
    if config is None or estimate is None:
        return sections[0]
    sections.insert(0, _headline(config))
    sections.append(f"parameters\n{_shares(costs.parameters(parameter_shapes(config)), 'parameters')}")
    macs = costs.multiply_adds(config)
    flops = 2 * sum(macs.values())
    sections.append(
        f"multiply-adds of a forward, one image: {_engineering(flops)}FLOP "
        f"(a training step takes three times that)\n{_shares(macs, 'multiply-adds')}"
    )
    shapes = {name: (shape, "") for name, shape in intermediate_shapes(config).items()}
    rows = [[name, _shape(shape), str(times)] for name, (shape, _), times in _alike(shapes)]
    sections.append(f"intermediates, one image\n{table(rows, ['name', 'shape', 'times'], 'l l r')}")
    kept = memory.training(config)
    sections.append(
        f"activation memory, one image in float32: {memory.readable(sum(kept.values()))} kept for the backward, about "
        f"{memory.readable(memory.inference(config))} at once for inference\n{_shares(kept, 'bytes')}"
    )
    sections.append(_estimate(estimate, config))
    return "\n\n".join(sections)


def as_json(
    tensors: Mapping[str, tuple[Shape, str]], config: Any, estimate: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return the same as plain values, every block by itself; without a configuration, the tensors alone."""
    listed = [{"name": name, "shape": list(shape), "dtype": dtype} for name, (shape, dtype) in tensors.items()]
    if config is None:
        return {"tensors": listed}
    macs = costs.multiply_adds(config)
    return {
        "config": asdict(config),
        "tensors": listed,
        "parameters": costs.parameters(parameter_shapes(config)),
        "multiply_adds": macs,
        "flops": 2 * sum(macs.values()),
        "intermediates": {name: list(shape) for name, shape in intermediate_shapes(config).items()},
        "activation_bytes": {"training": memory.training(config), "inference": memory.inference(config)},
        "estimate": estimate,
    }


def _headline(config: Any) -> str:
    (Y, X), (py, px) = config.image, config.patch
    grid = f"{config.grid[0]}x{config.grid[1]} = {config.num_patches} patches of {py}x{px}"
    return (
        f"width {config.embed_dim}, depth {config.depth}, {config.num_heads} heads of "
        f"{head_width(config)}, hidden {config.hidden}, {config.num_classes} classes\n"
        f"images {config.in_chans}x{Y}x{X}: {grid}, {config.num_prefix_tokens} tokens in front of them"
    )


def _estimate(estimate: Mapping[str, Any], config: Any) -> str:
    batch = estimate["batch_size"]
    step, inference = estimate["step_bytes"], estimate["inference_bytes"]
    reached = f"{speed.utilisation(config, speed.TRAINING):.0%} in training"
    reached += f" and {speed.utilisation(config, speed.INFERENCE):.0%} in inference"
    return (
        f"estimate for a batch of {batch} on this machine, in shards of {estimate['shard_size']}, "
        f"{counted(estimate['workers'], 'worker')}\n"
        f"training step: {memory.readable(sum(step.values()))}, {_seconds(estimate['step_seconds'])}, "
        f"{_seconds(estimate['step_seconds'] / batch)} an image\n"
        f"inference:     {memory.readable(sum(inference.values()))}, {_seconds(estimate['inference_seconds'])}, "
        f"{_seconds(estimate['inference_seconds'] / batch)} an image\n"
        f"matrix products run at {_engineering(estimate['gemm_flops_per_second'])}FLOP/s here, of which a model of "
        f"this width reaches about {reached}\n{_shares(step, 'bytes of a step')}"
    )


def _alike(entries: Mapping[str, tuple[Shape, str]]) -> list[tuple[str, tuple[Shape, str], int]]:
    """Put what differs in the first number of the name only, a block's, on one line: blocks.0-11.norm1.weight."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for name, entry in entries.items():
        match = _INDEX.match(name)
        key = (match[1], match[3], entry) if match else (name, None, entry)
        groups.setdefault(key, []).append(int(match[2]) if match else 0)
    lines = []
    for (before, after, entry), found in groups.items():
        numbers = sorted(found)  # files may count 0, 1, 10, 11, 2
        if after is None:
            lines.append((before, entry, 1))
        elif numbers == list(range(numbers[0], numbers[0] + len(numbers))) and len(numbers) > 1:
            lines.append((f"{before}{numbers[0]}-{numbers[-1]}{after}", entry, len(numbers)))
        else:
            lines += [(f"{before}{number}{after}", entry, 1) for number in numbers]
    return lines


def _shares(counts: Mapping[str, int], what: str) -> str:
    total = max(1, sum(counts.values()))
    rows = [[name, f"{count:,}", f"{count / total:.1%}"] for name, count in counts.items()]
    return table([*rows, ["total", f"{sum(counts.values()):,}", ""]], ["part", what, "share"], "l r r")


def _shape(shape: Shape) -> str:
    return "x".join(map(str, shape)) or "scalar"


def _engineering(number: float) -> str:
    for unit, name in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= unit:
            return f"{number / unit:.4g} {name}"
    return f"{number:.4g} "


def _seconds(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"
