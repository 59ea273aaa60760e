"""JAX's side of a benchmark row: a jitted ViT and AdamW in plain jax, and the protocol of numpy_vit.bench.

python scripts/contenders/jax_jit.py tiny-step --inputs inputs.npz
"""

from __future__ import annotations

import math
import sys
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from numpy_vit.bench import contender, measure, protocol
from numpy_vit.bench.workloads import LEARNING_RATE, WEIGHT_DECAY, Inputs, Workload
from numpy_vit.models.vit import Config

Arrays = dict[str, jax.Array]
BETA1, BETA2, EPS = 0.9, 0.999, 1e-8


def linear(params: Arrays, name: str, x: jax.Array) -> jax.Array:
    """Apply y = x Wᵀ + b."""
    return x @ params[f"{name}.weight"].T + params[f"{name}.bias"]


def layernorm(params: Arrays, name: str, x: jax.Array, eps: float) -> jax.Array:
    """Normalise the last axis."""
    x = x - x.mean(axis=-1, keepdims=True)
    x = x * jax.lax.rsqrt(jnp.square(x).mean(axis=-1, keepdims=True) + eps)
    return x * params[f"{name}.weight"] + params[f"{name}.bias"]


def attention(params: Arrays, name: str, x: jax.Array, heads: int) -> jax.Array:
    """Multi-head self-attention with a fused qkv."""
    B, N, D = x.shape
    qkv = linear(params, f"{name}.qkv", x).reshape(B, N, 3, heads, D // heads)
    q, k, v = qkv.transpose(2, 0, 3, 1, 4)  # (B, H, N, d)
    weights = jax.nn.softmax((q / math.sqrt(D // heads)) @ k.swapaxes(-1, -2), axis=-1)
    return linear(params, f"{name}.proj", (weights @ v).transpose(0, 2, 1, 3).reshape(B, N, D))


def forward(params: Arrays, images: jax.Array, config: Config) -> jax.Array:
    """Images (B, C, Y, X) to logits (B, K): the plain ViT that the benchmark's rows are."""
    B, C = images.shape[:2]
    (rows, columns), (py, px), D = config.grid, config.patch, config.embed_dim
    patches = images.reshape(B, C, rows, py, columns, px).transpose(0, 2, 4, 1, 3, 5).reshape(B, rows * columns, -1)
    x = patches @ params["patch_embed.proj.weight"].reshape(D, -1).T + params["patch_embed.proj.bias"]
    x = jnp.concatenate([jnp.broadcast_to(params["cls_token"], (B, 1, D)), x], axis=1) + params["pos_embed"]
    for i in range(config.depth):
        name = f"blocks.{i}"
        h = layernorm(params, f"{name}.norm1", x, config.norm_eps)
        x = x + attention(params, f"{name}.attn", h, config.num_heads)
        h = layernorm(params, f"{name}.norm2", x, config.norm_eps)
        h = jax.nn.gelu(linear(params, f"{name}.mlp.fc1", h), approximate=False)
        x = x + linear(params, f"{name}.mlp.fc2", h)
    return linear(params, "head", layernorm(params, "norm", x, config.norm_eps)[:, 0])


def loss_and_logits(
    params: Arrays, images: jax.Array, labels: jax.Array, config: Config
) -> tuple[jax.Array, jax.Array]:
    """Return the mean cross-entropy, and the logits."""
    logits = forward(params, images, config)
    own = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1)
    return -own.mean(), logits


@partial(jax.jit, static_argnames="config")
def gradients(params: Arrays, images: jax.Array, labels: jax.Array, config: Config) -> tuple[Any, Arrays]:
    """Return (loss, logits) and the gradients."""
    return jax.value_and_grad(loss_and_logits, has_aux=True)(params, images, labels, config)


@partial(jax.jit, static_argnames="config")
def train_step(
    params: Arrays, m: Arrays, v: Arrays, step: jax.Array, images: jax.Array, labels: jax.Array, config: Config
) -> tuple[Arrays, Arrays, Arrays, jax.Array, jax.Array]:
    """Return the parameters and AdamW's state after a step, and the loss before it."""
    (loss, _), grads = gradients(params, images, labels, config)
    step = step + 1
    m = jax.tree.map(lambda m, g: BETA1 * m + (1 - BETA1) * g, m, grads)
    v = jax.tree.map(lambda v, g: BETA2 * v + (1 - BETA2) * g * g, v, grads)
    correction1, correction2 = 1 - BETA1**step, 1 - BETA2**step

    def update(p: jax.Array, m: jax.Array, v: jax.Array) -> jax.Array:
        change = (m / correction1) / (jnp.sqrt(v / correction2) + EPS)
        return p * (1 - LEARNING_RATE * WEIGHT_DECAY) - LEARNING_RATE * change

    return jax.tree.map(update, params, m, v), m, v, step, loss


class Jax:
    """A workload in JAX; `run` and `outputs` as numpy_vit.bench.workloads.Job's."""

    def __init__(self, workload: Workload, inputs: Inputs) -> None:
        self._training = workload.training
        self._images, self._labels = jnp.asarray(inputs.images), jnp.asarray(inputs.labels.astype("int32"))
        self._params = {name: jnp.asarray(leaf) for name, leaf in inputs.params.items()}
        self._config = workload.config
        self._predict = jax.jit(forward, static_argnames="config")
        if workload.training:
            self._m, self._v = (jax.tree.map(jnp.zeros_like, self._params) for _ in range(2))
            self._step = jnp.zeros((), jnp.float32)

    def run(self) -> float | None:
        """Do the work once; return a step's loss."""
        if not self._training:
            self._predict(self._params, self._images, config=self._config).block_until_ready()
            return None
        self._params, self._m, self._v, self._step, loss = train_step(
            self._params, self._m, self._v, self._step, self._images, self._labels, config=self._config
        )
        jax.block_until_ready(self._params)
        return float(loss)

    def outputs(self) -> dict[str, Any]:
        """Return logits and, in training, loss, gradients' norm, and the loss after one step."""
        if not self._training:
            return {"logits": self._predict(self._params, self._images, config=self._config)}
        (loss, logits), grads = gradients(self._params, self._images, self._labels, config=self._config)
        norm = math.sqrt(sum(float(jnp.square(leaf).sum()) for leaf in grads.values()))
        self.run()
        return {"logits": logits, "loss": float(loss), "gradient_norm": norm, "loss_after_step": self.run()}


def main() -> int:
    """Serve on the standard streams."""
    base = measure.resident_bytes()
    args = contender.parser(__doc__).parse_args()
    workload = contender.chosen(args)
    return protocol.serve(lambda: Jax(workload, contender.inputs(args, workload)), base, *protocol.standard_streams())


if __name__ == "__main__":
    sys.exit(main())
