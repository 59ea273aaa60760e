"""The memory that a model takes, from the configuration alone: activations by what each layer's cache holds.

Activations are those of one image; S tokens (T prefix tokens and N patches), width D, hidden width F, H heads.  The
sums are numbers, times the bytes of one number.  A test walks the caches of real models and counts the same.
"""

from __future__ import annotations

import math

from numpy_vit.models import deit
from numpy_vit.models.vit_config import Config
from numpy_vit.views.shapes import attention_width, parameter_shapes

_AT_ONCE = 1 << 21  # dot_product_attention's: where a shard has more attention weights, they are computed in parts
_PIECE = 1 << 16  # elementwise's: so many numbers of an activation are computed at once


def training(config: Config, itemsize: int = 4, images: int = 1) -> dict[str, int]:
    """Return the bytes that a forward keeps for the backward, a part each, for one image of so many.

    With pre-norm or post-norm, a block keeps 9 S·D + 2 S + H·S² + 3 S·F numbers: both norms' x̂ and 1/σ, the inputs of
    the four linear layers, q, the array of which k and v are parts, the attention weights where they are few, the
    activation's input and what its slope follows from.  Dropout adds its masks.  Where only R tokens are read, the
    last block keeps R in place of S but for keys, values and what these come from.
    """
    S, D, rows = _tokens(config), config.embed_dim, _rows(config)
    pixels = config.in_chans * math.prod(config.patch)
    embedding = config.num_patches * pixels  # the patches
    embedding += config.num_patches * (pixels + 1) if config.patch_pre_norm else 0
    embedding += (config.num_patches * (D + 1) if config.patch_norm else 0) + (S * (D + 1) if config.norm_pre else 0)
    embedding += S * D if config.pos_drop_rate else 0
    counts = {
        "patch embedding": embedding,
        "attention": sum(_attention(config, R, images) for R in rows) + _paths(config),
        "MLP": sum(_mlp(config, R) for R in rows) + _paths(config),
        "norms and layer scale": sum(_norms(config, R) for R in rows),
        "pooling and head": _head(config),
    }
    return {name: count * itemsize for name, count in counts.items() if count}


def inference(config: Config, itemsize: int = 4, images: int = 1) -> int:
    """Return about how many bytes `vit.predict` has in use at its peak, for one image of so many, without parameters.

    Caches live until their block returns, so the peak is in a block: in the softmax, where scores and weights exist
    beside 7 S·D numbers, and the part before them where they come in parts; or in the activation, where three arrays
    of S·F (five with a gate) and two pieces exist beside 11 S·D and the weights.
    """
    S, D, F = _tokens(config), config.embed_dim, config.hidden
    weights, following = _weights(config, images)
    gate = (5 if config.swiglu else 2 if config.act == "relu" else 3) * S * F
    gate += 0 if config.act == "relu" else 2 * min(S * F, _PIECE // images)
    inner = 5 * S * attention_width(config)
    softmax = 3 * S * D + 4 * inner // 5 + weights + max(weights, 2 * following)
    return itemsize * max(softmax, 6 * S * D + inner + (0 if following else weights) + gate)


def step(
    config: Config, batch: int, shard: int, workers: int, *, averages: int = 2, itemsize: int = 4
) -> dict[str, int]:
    """Return about how many bytes a training step has in use at its peak, a part each.

    Parameters
    ----------
    shard, workers : images a shard, and threads: so many shards' activations exist at once
    averages : arrays as large as the parameters that live between the steps: two for Adam, one for SGD's momentum,
        one more for averaged weights
    """
    sizes = {name: math.prod(shape) for name, shape in parameter_shapes(config).items()}
    size, block = sum(sizes.values()), sum(count for name, count in sizes.items() if name.startswith("blocks.0."))
    threads = min(workers, -(-batch // shard))
    images = min(shard, batch)
    kept = sum(training(config, itemsize, images).values()) + _backward(config, images) * itemsize
    return {
        "parameters, gradients, optimizer": (2 + averages) * size * itemsize,
        # Those of a block are added up and let go when the next one's are known, those outside blocks at the end.
        "shards' gradients": threads * (size - max(0, config.depth - 2) * block) * itemsize,
        "activations": threads * images * kept,
        "images": 2 * batch * config.in_chans * math.prod(config.image) * itemsize,  # the next batch is prepared
    }


def prediction(config: Config, batch: int, shard: int, workers: int, itemsize: int = 4) -> dict[str, int]:
    """Return about how many bytes the logits of a batch need at the peak, a part each; the parameters as in step."""
    size = sum(math.prod(shape) for shape in parameter_shapes(config).values())
    threads, images = min(workers, -(-batch // shard)), min(shard, batch)
    return {
        "parameters": size * itemsize,
        "activations": threads * images * inference(config, itemsize, images),
        "images": batch * config.in_chans * math.prod(config.image) * itemsize,
    }


def readable(count: int) -> str:
    """Return "1.23 GB", "456 kB" or "78 bytes"."""
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= unit:
            return f"{count / unit:.3g} {name}"
    return f"{count} bytes"


def _backward(config: Config, images: int) -> int:
    """The numbers that a block's backward has in use beside the caches: in the MLP, or in the attention."""
    S, D, F = _tokens(config), config.embed_dim, config.hidden
    mlp = (4 if config.swiglu else 2) * S * F + 2 * S * D
    weights, following = _weights(config, images)
    # In parts they are not kept: p, dp and ds of the first are there until those of the second take their place.
    softmax = (3 if following else 2) * weights + 2 * following
    return max(mlp, softmax + S * D + 4 * S * attention_width(config))


def _weights(config: Config, images: int) -> tuple[int, int]:
    """How many attention weights of each image come in the first part, of some queries, and how many in the second."""
    S, row = _tokens(config), config.num_heads * _tokens(config)
    queries = min(S, max(1, _AT_ONCE // (images * row)))
    return queries * row, min(queries, S - queries) * row


def _tokens(config: Config) -> int:
    return config.num_prefix_tokens + config.num_patches


def _rows(config: Config) -> list[int]:
    """How many tokens each block computes: all, but in the last block those that are read, if no pool needs all."""
    rows = [_tokens(config)] * config.depth
    if config.block_forms(every_token=False) != config.block_forms(every_token=True):
        rows[-1] = config.read_tokens
    return rows


def _attention(config: Config, R: int, images: int) -> int:
    S, D, H, inner = _tokens(config), config.embed_dim, config.num_heads, attention_width(config)
    weights = H * R * S
    count = S * D + R * inner + (3 if R == S else 2) * S * inner  # input, scaled q, the array of k and v (and q)
    count += R * inner + (weights if images * weights <= _AT_ONCE else 0)  # the heads side by side
    if config.qk_norm:
        count += (R + S) * (inner + H) + S * inner  # both norms' x̂ and 1/σ; k after its norm
    count += weights if config.attn_drop_rate else 0
    return count + (R * D if config.proj_drop_rate else 0)


def _mlp(config: Config, R: int) -> int:
    D, F = config.embed_dim, config.hidden
    arrays = 5 if config.swiglu else 3  # input, what the slope follows from, output; with a gate its two factors
    if config.act == "relu" and not config.swiglu:
        arrays = 2 if config.proj_drop_rate else 1  # the output says the slope
    count = R * D + arrays * R * F
    return count + (R * F + R * D if config.proj_drop_rate else 0)


def _norms(config: Config, R: int) -> int:
    S, D = _tokens(config), config.embed_dim
    scales = 0 if config.init_values is None else 2 * R * D  # what layer scale multiplies
    return (S + R) * (D + 1) + scales


def _paths(config: Config) -> int:
    """Drop path's mask is one number a block, from the second block on."""
    return max(0, config.depth - 1) if config.drop_path_rate else 0


def _head(config: Config) -> int:
    N, D, F = config.num_patches, config.embed_dim, config.hidden
    S = (_rows(config) or [_tokens(config)])[-1]
    before, after = config.final_norm and not config.norm_after_pool, config.final_norm and config.norm_after_pool
    count = S * (D + 1) if before else 0
    if config.global_pool == "map":
        # The norm's output, then q, kv, weights, heads, x̂ and 1/σ, the MLP's input and three of F.
        count += S * D + D + 2 * N * D + config.num_heads * N + D + (D + 1) + D + 3 * F
    count += D + 1 if after else 0
    if isinstance(config, deit.Config):  # two heads read two tokens: with dropout, a mask and a product each
        views = S * D if config.num_classes and not config.drop_rate else 0
        return count + views + (2 * D * (2 if config.num_classes else 1) if config.drop_rate else 0)
    first = config.pre_logits or config.num_classes  # the first linear layer keeps its input
    dropped_input = config.drop_rate and not config.pre_logits
    if first:
        # The class token is a view: it keeps all tokens alive.
        view = config.global_pool == "token" and not after and not dropped_input
        count += S * D if view else config.pooled_dim
    width = config.pre_logits or config.pooled_dim
    if config.pre_logits:
        count += config.pre_logits  # tanh's output, which the head shares unless dropout makes another
    count += width if config.drop_rate else 0
    return count + (width if config.drop_rate and config.pre_logits and config.num_classes else 0)
