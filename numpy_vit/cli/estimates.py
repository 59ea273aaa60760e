"""What a training step and inference will take on this machine, in memory and time, before anything is run."""

from __future__ import annotations

from typing import Any

from numpy_vit.cli.usage import cores
from numpy_vit.training.shards import LEAST, MOST, shard_size
from numpy_vit.views import memory, speed

PROCESS = 50_000_000  # bytes of Python, NumPy and Pillow beside the arrays that are counted, measured


def estimate(config: Any, batch: int, workers: int) -> dict[str, Any]:
    """Return bytes and seconds of a training step with AdamW, and of inference, for a batch.

    It measures the machine's matrix products for a tenth of a second, with as many BLAS threads as there are cores.
    """
    shard, predicted = _shard(config, batch), _shard(config, batch, MOST)
    flops = speed.gemm_speed()
    return {
        "batch_size": batch,
        "workers": workers,
        "shard_size": shard,
        "gemm_flops_per_second": flops,
        "step_bytes": step_memory(config, batch, workers),
        "step_seconds": speed.step_seconds(config, batch, shard, workers, flops / cores()),
        "inference_bytes": memory.prediction(config, batch, predicted, workers),
        "inference_seconds": speed.predict_seconds(config, batch, predicted, workers, flops / cores()),
    }


def step_memory(config: Any, batch: int, workers: int, averages: int = 2) -> dict[str, int]:
    """Return the bytes of a training step, a part each; `averages` as in memory.step."""
    return memory.step(config, batch, _shard(config, batch), workers, averages=averages)


def about_bytes(count: int) -> str:
    """Return "0.34 GB" or "61 MB"."""
    return f"{count / 1e9:.2g} GB" if count >= 1e8 else f"{max(1, round(count / 1e6))} MB"


def about_seconds(seconds: float) -> str:
    """Return "54 s", "12 min" or "3.4 h"."""
    if seconds < 100:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def _shard(config: Any, batch: int, least: int = LEAST) -> int:
    return shard_size(batch, config.num_tokens, least)
