"""How much memory a step and a prediction take: that of a shard, that of a block, never a batch's or a model's."""

from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from numpy_vit import tree
from numpy_vit.layers import block, dot_product_attention
from numpy_vit.models import vit
from numpy_vit.training import step

TOKENS, WIDTH, SHARD = 65, 48, 4
STREAM, LOGITS = SHARD * TOKENS * WIDTH * 4, 10 * 4  # bytes of a shard's tokens, and of an image's logits, in float32


def model(depth: int) -> tuple[vit.Config, Any]:
    config = vit.Config(image_size=32, patch_size=4, num_classes=10, embed_dim=WIDTH, depth=depth, num_heads=3)
    return config, vit.init(config, np.random.default_rng(0))


def images(count: int) -> Any:
    return np.random.default_rng(1).standard_normal((count, 3, 32, 32)).astype(np.float32)


def peak(function: Callable[[], Any]) -> int:
    """The most bytes that a call has at a time, beyond what was there."""
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_step_of_four_times_the_batch_takes_no_more_than_its_logits() -> None:
    config, params = model(2)
    into = tree.pack(tree.map(np.zeros_like, params))

    def of(batch: int, shard: int = SHARD) -> int:
        some, labels = images(batch), np.zeros(batch, np.int64)
        return peak(lambda: step.gradients(vit, params, config, some, labels, shard=shard, into=into))

    of(SHARD)  # what Python makes once is no part of it
    small, large = of(8), of(32)
    assert small > 30 * STREAM  # the measure sees the activations
    # Every shard's logits, then all of them in one array; and Python's own: a kilobyte a shard.
    assert large - small < 2 * (32 - 8) * LOGITS + (32 - 8) // SHARD * 1024
    assert of(32, shard=32) > 5 * small


def block_bytes(config: vit.Config, params: Any) -> int:
    """The size of all arrays that one block keeps for its backward on a shard, parameters aside."""

    def arrays(node: Any) -> Iterator[Any]:
        if isinstance(node, (tuple, list, dict)):
            for child in node.values() if isinstance(node, dict) else node:
                yield from arrays(child)
        elif isinstance(node, np.ndarray):
            while node.base is not None:
                node = node.base
            yield node

    tokens = np.random.default_rng(0).standard_normal((SHARD, TOKENS, WIDTH)).astype(np.float32)
    _, cache = block.forward(params["blocks"][0], tokens, config.blocks[0])
    own = {id(leaf) for leaf in tree.flatten(params).values()}
    return sum({id(array): array.nbytes for array in arrays(cache) if id(array) not in own}.values())


@pytest.mark.parametrize("sharded", [False, True])
def test_a_prediction_takes_one_block_s_memory_however_deep_the_model(sharded: bool) -> None:
    def of(depth: int, batch: int = SHARD) -> int:
        config, params = model(depth)
        some = images(batch)
        if sharded:
            return peak(lambda: step.logits(vit, params, config, some, shard=SHARD))
        return peak(lambda: vit.predict(params, some, config))

    of(2)  # what Python makes once is no part of it
    shallow, deep = of(2), of(8)
    assert deep - shallow < 4096
    assert shallow < 1.4 * block_bytes(*model(2))  # what it would keep, and what passes by: tokens, scores
    if sharded:
        assert of(2, 8 * SHARD) - shallow < 2 * 7 * SHARD * LOGITS + 7 * 1024


def test_attention_in_chunks_never_has_all_of_its_weights() -> None:
    q, k, v, do = np.random.default_rng(0).standard_normal((4, 1, 2, 600, 8)).astype(np.float32)
    weights = 2 * 600 * 600 * 4

    def both(at_once: int) -> int:
        def run() -> None:
            _, cache = dot_product_attention.forward(q, k, v, at_once=at_once)
            dot_product_attention.backward(do, cache)

        return peak(run)

    assert both(2 * 600 * 600) > 2 * weights
    assert both(2 * 600 * 20) < weights / 3


LARGE_STEP = """
import sys
import numpy as np
from numpy_vit import tree
from numpy_vit.models import vit, vit_config
from numpy_vit.training import adamw, allocator, groups
from numpy_vit.training.step import gradients

def megabytes(field):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(field)) / 1024

if sys.argv[1] == "True":
    allocator.keep_freed_memory()
before = megabytes("VmRSS")
config = vit_config("vit_tiny_patch16_1024")
assert (config.num_patches, config.embed_dim, config.depth, config.num_heads) == (4096, 192, 12, 3)
rng = np.random.default_rng(0)
params = vit.init(config, rng)
order, parts = groups.parameter_groups(params, 0.05)
buffer, params = tree.pack(params, order)
into = tree.pack(params, order)
state = adamw.init(buffer)
images = rng.standard_normal((1, 3, 1024, 1024), np.float32)
start = buffer.copy()
found = gradients(vit, params, config, images, np.array([3]), into=into)
groups.apply(adamw.update, buffer, into[0], state, parts, 1e-3)
assert 6 < found.loss < 8 and np.isfinite(buffer).all() and (buffer != start).mean() > 0.99
print(before, megabytes("VmHWM"))
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("kept", [False, True])
def test_an_image_of_1024x1024_trains_in_two_gigabytes(kept: bool) -> None:
    """ViT-Ti/16 has 4097 tokens there: its attention weights alone would be 2.4 GB of float32, kept for a backward."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", LARGE_STEP, str(kept)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    before, highest = map(float, done.stdout.split())
    print(f"1024x1024: {highest - before:.0f} MB above the {before:.0f} MB after imports, freed memory kept: {kept}")
    assert highest - before < 2048
