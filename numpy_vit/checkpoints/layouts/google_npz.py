"""Google's npz files: vision_transformer (the original and AugReg) and the variants of big_vision.

Keys are paths, kernels are (in, out), attention kernels (D, H, d), convolutions (row, column, channel, D).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np

from numpy_vit.checkpoints.layouts.layout import Assumption, Layout
from numpy_vit.checkpoints.layouts.rules import Geometry, Rule, Tensors, one, patches_channel_last, rename, transposed
from numpy_vit.tree import Array

NAME = "google-npz"
_PATCH = "embedding/kernel"
_POSITIONS = ("pos_embedding", "Transformer/pos_embedding", "Transformer/posembed_input/pos_embedding")
_ORIGINAL = ("LayerNorm_0", "MultiHeadDotProductAttention_1", "LayerNorm_2", "MlpBlock_3")  # one counter for all
_LINEN = ("LayerNorm_0", "MultiHeadDotProductAttention_0", "LayerNorm_1", "MlpBlock_0")  # one counter a class
_IGNORED = (r"(.*/)?opt/.*", r"params/(txt|t|b)(/.*)?", r"(txt|t|b)(/.*)?", r"opt/(?!target).*")


def detect(tensors: Tensors) -> Layout | None:
    """Return the layout of a ViT that JAX code of Google wrote, whatever its prefix, or None."""
    prefixes = [key.removesuffix(_PATCH) for key in tensors if key == _PATCH or key.endswith(f"/{_PATCH}")]
    for prefix in sorted(prefixes, key=len):
        if any(key.startswith(f"{prefix}Transformer/encoderblock") for key in tensors):
            return _layout(tensors, prefix)
    return None


def _layout(tensors: Tensors, prefix: str) -> Layout:
    stack = f"{prefix}Transformer/encoderblock/"
    scanned = any(key.startswith(stack) for key in tensors)
    first = stack if scanned else f"{prefix}Transformer/encoderblock_0/"
    names = _ORIGINAL if f"{first}{_ORIGINAL[1]}/query/kernel" in tensors else _LINEN
    positions = next((p for p in _POSITIONS if prefix + p in tensors), None)
    kernel = tensors.get(f"{first}{names[1]}/query/kernel")
    fields = {} if kernel is None or kernel.ndim < 3 else {"num_heads": kernel.shape[-2]}
    assumed = () if positions else (Assumption("pos_embed", "sincos_2d_simple", "the file has no position table"),)
    pool = f"{prefix}MAPHead_0/" if f"{prefix}MAPHead_0/probe" in tensors else prefix
    rules = (
        rename("cls_token", f"{prefix}cls"),
        *_patches(tensors[prefix + _PATCH], prefix),
        *([_table(tensors[prefix + positions], prefix + positions)] if positions else []),
        *_block("blocks.{i}.", f"{prefix}Transformer/encoderblock_{{i}}/", names),
        *_norm("norm", f"{prefix}Transformer/encoder_norm"),
        *_pool(pool),
        *_dense("pre_logits.fc", f"{prefix}pre_logits"),
        *_dense("head", f"{prefix}head"),
    )
    return Layout(
        NAME,
        "google" if names is _ORIGINAL else "big_vision",
        rules,
        fields,
        assumed,
        _IGNORED,
        pixels=tensors[prefix + _PATCH].shape[0] if tensors[prefix + _PATCH].ndim == 2 else 0,
        open=_opener(stack) if scanned else lambda found: found,
        close=_closer(stack) if scanned else lambda made: made,
    )


def _patches(kernel: Array, prefix: str) -> list[Rule]:
    bias = rename("patch_embed.proj.bias", f"{prefix}embedding/bias")
    if kernel.ndim == 2:  # NaFlex: (row, column, channel) vectors, and (in, out) as every kernel
        flat = patches_channel_last(prefix + _PATCH)
        return [
            Rule(
                flat.ours,
                flat.theirs,
                lambda a, g: flat.unpack([a[0].T], g),
                lambda a, g: [flat.pack(a, g)[0].T],
            ),
            bias,
        ]
    weight = one(
        "patch_embed.proj.weight", prefix + _PATCH, lambda a: a.transpose(3, 2, 0, 1), lambda a: a.transpose(2, 3, 1, 0)
    )
    return [weight, bias]


def _table(table: Array, key: str) -> Rule:
    if table.ndim == 3 and table.shape[0] != 1:  # NaFlex: (rows, columns, D)
        return one("pos_embed", key, lambda a: a.reshape(1, -1, a.shape[-1]), lambda a: a.reshape(table.shape))
    return rename("pos_embed", key)


def _block(ours: str, theirs: str, names: tuple[str, str, str, str]) -> list[Rule]:
    norm1, attention, norm2, mlp = (theirs + name for name in names)
    return [
        *_norm(f"{ours}norm1", norm1),
        _qkv(f"{ours}attn.qkv.weight", [f"{attention}/{name}/kernel" for name in ("query", "key", "value")]),
        _qkv_bias(f"{ours}attn.qkv.bias", [f"{attention}/{name}/bias" for name in ("query", "key", "value")]),
        *_out(f"{ours}attn.proj", f"{attention}/out"),
        *_norm(f"{ours}norm2", norm2),
        *_dense(f"{ours}mlp.fc1", f"{mlp}/Dense_0"),
        *_dense(f"{ours}mlp.fc2", f"{mlp}/Dense_1"),
    ]


def _pool(theirs: str) -> list[Rule]:
    attention = f"{theirs}MultiHeadDotProductAttention_0"

    def heads(count: int, a: Array) -> Array:
        kernel: Array = a.T.reshape(a.shape[1], count, -1)
        return kernel

    return [
        rename("attn_pool.latent", f"{theirs}probe"),
        Rule(
            ("attn_pool.q.weight",),
            (f"{attention}/query/kernel",),
            lambda a, _: [_matrix(a[0])],
            lambda a, g: [heads(g.num_heads, a[0])],
        ),
        Rule(
            ("attn_pool.q.bias",),
            (f"{attention}/query/bias",),
            lambda a, _: [a[0].reshape(-1)],
            lambda a, g: [a[0].reshape(g.num_heads, -1)],
        ),
        _qkv("attn_pool.kv.weight", [f"{attention}/{name}/kernel" for name in ("key", "value")]),
        _qkv_bias("attn_pool.kv.bias", [f"{attention}/{name}/bias" for name in ("key", "value")]),
        *_out("attn_pool.proj", f"{attention}/out"),
        *_norm("attn_pool.norm", f"{theirs}LayerNorm_0"),
        *_dense("attn_pool.mlp.fc1", f"{theirs}MlpBlock_0/Dense_0"),
        *_dense("attn_pool.mlp.fc2", f"{theirs}MlpBlock_0/Dense_1"),
    ]


def _norm(ours: str, theirs: str) -> list[Rule]:
    return [rename(f"{ours}.weight", f"{theirs}/scale"), rename(f"{ours}.bias", f"{theirs}/bias")]


def _dense(ours: str, theirs: str) -> list[Rule]:
    return [transposed(f"{ours}.weight", f"{theirs}/kernel"), rename(f"{ours}.bias", f"{theirs}/bias")]


def _out(ours: str, theirs: str) -> list[Rule]:
    weight = Rule(
        (f"{ours}.weight",),
        (f"{theirs}/kernel",),  # (H, d, D)
        lambda a, _: [a[0].reshape(-1, a[0].shape[-1]).T],
        lambda a, g: [a[0].T.reshape(g.num_heads, -1, len(a[0]))],
    )
    return [weight, rename(f"{ours}.bias", f"{theirs}/bias")]


def _matrix(kernel: Array) -> Array:
    """(D, H, d) to PyTorch's (H·d, D)."""
    matrix: Array = kernel.reshape(len(kernel), -1).T
    return matrix


def _qkv(ours: str, theirs: list[str]) -> Rule:
    def pack(arrays: Sequence[Array], g: Geometry) -> list[Array]:
        parts = np.split(arrays[0], len(theirs))
        return [part.T.reshape(part.shape[1], g.num_heads, -1) for part in parts]

    return Rule((ours,), tuple(theirs), lambda a, _: [np.concatenate([_matrix(part) for part in a])], pack)


def _qkv_bias(ours: str, theirs: list[str]) -> Rule:
    def pack(arrays: Sequence[Array], g: Geometry) -> list[Array]:
        return [part.reshape(g.num_heads, -1) for part in np.split(arrays[0], len(theirs))]

    return Rule((ours,), tuple(theirs), lambda a, _: [np.concatenate([part.reshape(-1) for part in a])], pack)


def _opener(stack: str) -> Callable[[Tensors], Tensors]:
    """Cut the stacks over blocks, which jax.lax.scan wants, apart."""

    def open_(tensors: Tensors) -> Tensors:
        apart: dict[str, Array] = {}
        for key, array in tensors.items():
            if key.startswith(stack):
                name = key.removeprefix(stack)
                apart.update({f"{stack[:-1]}_{i}/{name}": block for i, block in enumerate(array)})
            else:
                apart[key] = array
        return apart

    return open_


def _closer(stack: str) -> Callable[[Tensors], Tensors]:
    """Stack the blocks again."""
    pattern = re.compile(re.escape(stack[:-1]) + r"_(\d+)/(.*)")

    def close(tensors: Tensors) -> Tensors:
        together: dict[str, Array] = {}
        rows: dict[str, dict[int, Array]] = {}
        for key, array in tensors.items():
            if match := pattern.fullmatch(key):
                rows.setdefault(match[2], {})[int(match[1])] = array
            else:
                together[key] = array
        return together | {stack + name: np.stack([found[i] for i in sorted(found)]) for name, found in rows.items()}

    return close
