"""What a Vision Transformer is besides its weights."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from types import ModuleType

from numpy_vit.layers import block as pre_norm_block
from numpy_vit.layers import (
    gelu,
    gelu_tanh,
    mlp,
    patch_dropout,
    post_norm_block,
    quick_gelu,
    readout_block,
    relu,
    silu,
    swiglu,
)

ACTIVATIONS: dict[str, ModuleType] = {
    "gelu": gelu, "gelu_tanh": gelu_tanh, "quick_gelu": quick_gelu, "relu": relu,
}  # fmt: skip
BLOCKS: dict[str, ModuleType] = {"pre_norm": pre_norm_block, "post_norm": post_norm_block}
POSITIONS = ("learned", "sincos_1d", "sincos_2d_mae", "sincos_2d_simple", "none")
POOLS = ("token", "avg", "token_avg", "map")
_WHOLE = {  # field: its least value
    "in_chans": 1, "num_classes": 0, "embed_dim": 1, "depth": 0, "num_heads": 1, "hidden_dim": 1, "reg_tokens": 0,
    "pre_logits": 1, "head_dim": 1,
}  # fmt: skip
_RATES = ("drop_rate", "pos_drop_rate", "patch_drop_rate", "proj_drop_rate", "attn_drop_rate", "drop_path_rate")
_FEW_TOKENS = 8


@dataclass(frozen=True)
class Config:
    """The sizes and choices of a Vision Transformer, with timm's names where timm has them.

    Parameters
    ----------
    image_size, patch_size : (height, width); one number means a square
    in_chans, num_classes : image channels C, classes K; 0 classes means no head: the model returns features
    embed_dim, depth, num_heads : width D, blocks, heads H
    head_dim : width d of each head; None means D/H
    hidden_dim : the MLP's hidden width F; None means 4 D.  With swiglu, the width of each half
    block : "pre_norm" or "post_norm"
    norm_eps : of every LayerNorm
    act : "gelu" (exact), "gelu_tanh", "quick_gelu" or "relu"; swiglu has a gate by silu instead
    qkv_bias, qk_norm, init_values : a bias in qkv; norms of queries and keys; the start of layer scale, None for none
    patch_bias, patch_norm, patch_pre_norm : the patch projection's bias; a norm after it; a norm of its pixels
    norm_pre : a norm before the blocks
    final_norm : a norm after the blocks at all
    fc_norm : that norm comes after pooling rather than before it; None: as in timm, only for global_pool "avg"
    class_token, reg_tokens : a class token; the number of registers
    pos_embed : "learned", "sincos_1d", "sincos_2d_mae", "sincos_2d_simple" or "none"
    no_embed_class : only the patches have position rows, the prefix tokens have none
    global_pool : "token" (the class token), "avg" (the patches), "token_avg" (both, side by side) or "map" (attention)
    pool_include_prefix : "avg" averages the prefix tokens too
    pre_logits : width of a tanh layer between pooling and head; None for none
    drop_rate, pos_drop_rate, proj_drop_rate, attn_drop_rate : dropout before the head, after the positions, after
        the projection and twice in the MLP, on the attention weights
    patch_drop_rate : share of the patches that training drops before the blocks, other ones of each image
    drop_path_rate : of the last block; it rises linearly from 0 in the first

    Raises
    ------
    ValueError : values that contradict each other; the message names them and the remedy.

    Warns
    -----
    UserWarning : a patch so large that few tokens remain.
    """

    image_size: tuple[int, int] | int = 224
    patch_size: tuple[int, int] | int = 16
    in_chans: int = 3
    num_classes: int = 1000
    embed_dim: int = 768
    depth: int = 12
    num_heads: int = 12
    hidden_dim: int | None = None
    head_dim: int | None = None
    block: str = "pre_norm"
    norm_eps: float = 1e-6
    act: str = "gelu"
    swiglu: bool = False
    qkv_bias: bool = True
    qk_norm: bool = False
    init_values: float | None = None
    patch_bias: bool = True
    patch_norm: bool = False
    patch_pre_norm: bool = False
    norm_pre: bool = False
    final_norm: bool = True
    fc_norm: bool | None = None
    class_token: bool = True
    reg_tokens: int = 0
    pos_embed: str = "learned"
    no_embed_class: bool = False
    global_pool: str = "token"
    pool_include_prefix: bool = False
    pre_logits: int | None = None
    drop_rate: float = 0.0
    pos_drop_rate: float = 0.0
    patch_drop_rate: float = 0.0
    proj_drop_rate: float = 0.0
    attn_drop_rate: float = 0.0
    drop_path_rate: float = 0.0

    def __post_init__(self) -> None:
        for name in ("image_size", "patch_size"):
            object.__setattr__(self, name, _pair(name, getattr(self, name)))
        for name, least in _WHOLE.items():
            value = getattr(self, name)
            whole = isinstance(value, int) and value >= least
            optional = value is None and name in ("hidden_dim", "head_dim", "pre_logits")
            _demand(whole or optional, f"{name} {value!r} has to be a whole number of at least {least}")
        _demand(
            self.init_values is None or self.init_values > 0,
            f"init_values {self.init_values} has to be positive, or None",
        )
        _demand(self.norm_eps > 0, f"norm_eps {self.norm_eps} has to be positive: a constant token divides by zero")
        _one_of("block", self.block, BLOCKS)
        _one_of("act", self.act, ACTIVATIONS)
        _one_of("pos_embed", self.pos_embed, POSITIONS)
        _one_of("global_pool", self.global_pool, POOLS)
        for name in _RATES:
            rate = getattr(self, name)
            _demand(0 <= rate < 1, f"{name} {rate} has to lie in [0, 1)")
        self._check_shapes()

    def _check_shapes(self) -> None:
        (Y, X), (py, px) = self.image, self.patch
        whole = f"{-(-Y // py) * py}x{-(-X // px) * px}"
        _demand(
            Y % py == 0 and X % px == 0,
            f"image_size {Y}x{X} is not a whole number of {py}x{px} patches: "
            f"choose a patch_size that divides it, or resize the images to {whole}",
        )
        fitting = [h for h in range(1, self.embed_dim + 1) if self.embed_dim % h == 0]
        nearest = min(fitting, key=lambda h: abs(h - self.num_heads))
        _demand(
            self.embed_dim % self.num_heads == 0 or (self.head_dim is not None and self.global_pool != "map"),
            f"num_heads {self.num_heads} does not divide embed_dim {self.embed_dim}: "
            f"choose {nearest} heads, or a width that is a multiple of {self.num_heads}",
        )
        _demand(
            self.class_token or self.global_pool not in ("token", "token_avg"),
            f"global_pool {self.global_pool!r} needs class_token=True; without one, choose global_pool 'avg' or 'map'",
        )
        _demand(
            self.pos_drop_rate == 0 or self.pos_embed != "none",
            f"pos_drop_rate {self.pos_drop_rate} needs positions: timm drops nothing where pos_embed is 'none'",
        )
        _demand(
            not (self.swiglu and self.global_pool == "map"),
            "swiglu with global_pool 'map' is not built: no published model has both; choose 'token' or 'avg'",
        )
        _demand(
            not (self.norm_after_pool and self.final_norm and self.global_pool == "token_avg"),
            "fc_norm with global_pool 'token_avg' is not built: no published model has both; choose fc_norm=False",
        )
        multiple = {"sincos_1d": 2, "sincos_2d_mae": 4, "sincos_2d_simple": 4}.get(self.pos_embed, 1)
        _demand(
            self.embed_dim % multiple == 0 and not (self.pos_embed == "sincos_2d_simple" and self.embed_dim < 8),
            f"pos_embed {self.pos_embed!r} needs an embed_dim that is a multiple of {multiple}"
            f"{' and at least 8' if self.pos_embed == 'sincos_2d_simple' else ''}, not {self.embed_dim}",
        )
        if self.num_patches < _FEW_TOKENS:
            warnings.warn(
                f"{py}x{px} patches leave only {self.num_patches} tokens of a {Y}x{X} image: attention has little to "
                f"relate, and each token describes {py * px} pixels, so accuracy will suffer; "
                f"try patch_size {max(1, py // 4)}",
                stacklevel=4,
            )

    @property
    def image(self) -> tuple[int, int]:
        """(Y, X), the image's height and width."""
        return _pair("image_size", self.image_size)

    @property
    def patch(self) -> tuple[int, int]:
        """(py, px), the patch's height and width."""
        return _pair("patch_size", self.patch_size)

    @property
    def grid(self) -> tuple[int, int]:
        """(rows, columns) of patches."""
        return self.image[0] // self.patch[0], self.image[1] // self.patch[1]

    @property
    def num_patches(self) -> int:
        """N, the number of patch tokens."""
        return self.grid[0] * self.grid[1]

    @property
    def num_prefix_tokens(self) -> int:
        """T, the number of tokens in front of the patches."""
        return int(self.class_token) + self.reg_tokens

    @property
    def num_tokens(self) -> int:
        """T + N, the tokens that the blocks work on."""
        return self.num_prefix_tokens + self.num_patches

    @property
    def num_kept_tokens(self) -> int:
        """The tokens that the blocks work on in training, where patches are dropped."""
        return self.num_prefix_tokens + patch_dropout.kept(self.num_patches, self.patch_drop_rate)

    @property
    def hidden(self) -> int:
        """F, the hidden width of the MLP."""
        return 4 * self.embed_dim if self.hidden_dim is None else self.hidden_dim

    @property
    def pooled_dim(self) -> int:
        """Width of what pooling returns."""
        return 2 * self.embed_dim if self.global_pool == "token_avg" else self.embed_dim

    @property
    def norm_after_pool(self) -> bool:
        """Whether the last norm comes after pooling (timm's fc_norm) rather than before it (norm)."""
        return self.global_pool == "avg" if self.fc_norm is None else self.fc_norm

    def block_forms(self, every_token: bool) -> list[ModuleType]:
        """Return each block's module; unless every token is asked for, the last one computes those that are read.

        That changes rounding, nothing else, and saves up to an eighth of a depth-6 step.  Pools other than the class
        token read every token, and the post-norm block has no such form.
        """
        forms = [BLOCKS[self.block]] * self.depth
        if self.depth and not every_token and self.block == "pre_norm" and self.global_pool == "token":
            forms[-1] = readout_block
        return forms

    @property
    def read_tokens(self) -> int:
        """How many leading tokens the head reads where it reads no pool of them: the class token."""
        return 1

    @property
    def blocks(self) -> list[pre_norm_block.Config]:
        """The choices of each block; drop path rises linearly with depth, as in timm."""
        last = max(self.depth - 1, 1)
        return [
            pre_norm_block.Config(
                num_heads=self.num_heads,
                eps=self.norm_eps,
                ffn=swiglu if self.swiglu else mlp,
                act=silu if self.swiglu else ACTIVATIONS[self.act],
                attn_drop=self.attn_drop_rate,
                proj_drop=self.proj_drop_rate,
                drop_path=self.drop_path_rate * i / last,
                read=self.read_tokens,
            )
            for i in range(self.depth)
        ]


def _demand(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


def _one_of(name: str, value: str, choices: Iterable[str]) -> None:
    names = list(choices)
    _demand(value in names, f"{name} {value!r} is unknown: choose one of {', '.join(map(repr, names))}")


def _pair(name: str, value: tuple[int, int] | int) -> tuple[int, int]:
    pair = (value, value) if isinstance(value, int) else tuple(value)
    if len(pair) != 2 or not all(isinstance(side, int) and side >= 1 for side in pair):
        raise ValueError(f"{name} {value!r} has to be one positive whole number or two (height, width)")
    return pair[0], pair[1]
