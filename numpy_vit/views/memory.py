"""The memory that activations take, from the configuration alone: what each layer's cache holds, layer by layer.

One image; S tokens (T prefix tokens and N patches), width D, hidden width F, H heads.  The sums are numbers, times
the bytes of one number.  A test walks the caches of real models and counts the same.
"""

from __future__ import annotations

import math

from numpy_vit.models import deit
from numpy_vit.models.vit_config import Config
from numpy_vit.views.shapes import attention_width


def training(config: Config, itemsize: int = 4) -> dict[str, int]:
    """Return the bytes that a forward keeps for the backward, a part each, for one image.

    With pre-norm or post-norm, a block keeps 9 S·D + 2 S + H·S² + 2 S·F numbers: both norms' x̂ and 1/σ, the inputs of
    the four linear layers, q, the array of which k and v are parts, the attention weights, the activation's slope.
    Dropout adds its masks.
    """
    S, D = _tokens(config), config.embed_dim
    pixels = config.in_chans * math.prod(config.patch)
    embedding = config.num_patches * pixels  # the patches
    embedding += config.num_patches * (pixels + 1) if config.patch_pre_norm else 0
    embedding += (config.num_patches * (D + 1) if config.patch_norm else 0) + (S * (D + 1) if config.norm_pre else 0)
    embedding += S * D if config.pos_drop_rate else 0
    counts = {
        "patch embedding": embedding,
        "attention": config.depth * _attention(config) + _paths(config),
        "MLP": config.depth * _mlp(config) + _paths(config),
        "norms and layer scale": config.depth * _norms(config),
        "pooling and head": _head(config),
    }
    return {name: count * itemsize for name, count in counts.items() if count}


def inference(config: Config, itemsize: int = 4) -> int:
    """Return about how many bytes `vit.predict` has in use at its peak, for one image, parameters not counted.

    Caches live until their block returns, so the peak is in a block: in the softmax, where scores and weights exist
    beside 7 S·D numbers, or in the activation, where three arrays of S·F (five with a gate) exist beside 11 S·D and
    the weights.
    """
    S, D, F = _tokens(config), config.embed_dim, config.hidden
    weights = config.num_heads * S * S
    gate = (5 if config.swiglu else 2 if config.act == "relu" else 3) * S * F
    inner = 5 * S * attention_width(config)
    return itemsize * max(3 * S * D + 4 * inner // 5 + 2 * weights, 6 * S * D + inner + weights + gate)


def _tokens(config: Config) -> int:
    return config.num_prefix_tokens + config.num_patches


def _attention(config: Config) -> int:
    S, D, weights = _tokens(config), config.embed_dim, config.num_heads * _tokens(config) ** 2
    SI = S * attention_width(config)
    count = S * D + SI + 3 * SI + weights + SI  # input, scaled q, qkv, weights, the heads side by side
    if config.qk_norm:
        count += 2 * (SI + config.num_heads * S) + SI  # both norms' x̂ and 1/σ; k after its norm
    count += 2 * weights if config.attn_drop_rate else 0  # mask, dropped weights
    return count + (S * D if config.proj_drop_rate else 0)


def _mlp(config: Config) -> int:
    S, D, F = _tokens(config), config.embed_dim, config.hidden
    count = S * D + (5 if config.swiglu else 2) * S * F  # input; slope and output, and with a gate its two factors
    if config.act == "relu" and not config.swiglu and not config.proj_drop_rate:
        count -= S * F  # the output says the slope
    return count + (S * F + S * D if config.proj_drop_rate else 0)


def _norms(config: Config) -> int:
    S, D = _tokens(config), config.embed_dim
    scales = 0 if config.init_values is None else 2 * S * D  # what layer scale multiplies
    return 2 * (S * D + S) + scales


def _paths(config: Config) -> int:
    """Drop path's mask is one number a block, from the second block on."""
    return max(0, config.depth - 1) if config.drop_path_rate else 0


def _head(config: Config) -> int:
    S, N, D, F = _tokens(config), config.num_patches, config.embed_dim, config.hidden
    before, after = config.final_norm and not config.norm_after_pool, config.final_norm and config.norm_after_pool
    count = S * (D + 1) if before else 0
    if config.global_pool == "map":
        # The norm's output, then q, kv, weights, heads, x̂ and 1/σ, the MLP's input, slope and output.
        count += S * D + D + 2 * N * D + config.num_heads * N + D + (D + 1) + D + 2 * F
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
