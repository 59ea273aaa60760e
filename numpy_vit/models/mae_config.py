"""What a masked autoencoder is besides its weights."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from numpy_vit.models import vit

# Ours, for 32x32 images on a laptop: vit_mini_patch4_32 with a class token and the positions that MAE has.
LAPTOP = vit.Config(
    image_size=32, patch_size=4, num_classes=0, embed_dim=128, depth=6, num_heads=4, hidden_dim=256,
    global_pool="avg", fc_norm=False, pos_embed="sincos_2d_mae",
)  # fmt: skip
_FIXED = {
    "class_token": True, "reg_tokens": 0, "pos_embed": "sincos_2d_mae", "final_norm": True, "patch_drop_rate": 0.0,
}  # fmt: skip


@dataclass(frozen=True)
class Config:
    """The sizes and choices of a masked autoencoder, with the reference code's names.

    Parameters
    ----------
    encoder : the Vision Transformer that is trained; its head, pooling and the place of its last norm do not matter
        here, and `mae.encoder_params` gives its pooling back
    decoder_embed_dim, decoder_depth, decoder_num_heads : width, blocks and heads of the decoder
    decoder_hidden_dim : the hidden width of the decoder's MLPs; None means as many times its width as in the encoder
    mask_ratio : the part of the patches that is removed
    norm_pix_loss : the target of a patch is its pixels less their mean, divided by their deviation

    Raises
    ------
    ValueError : values that contradict each other; the message names them and the remedy.

    Source: He et al. 2022; the defaults of the ratio and of the target are the paper's.
    """

    encoder: vit.Config = LAPTOP
    decoder_embed_dim: int = 64
    decoder_depth: int = 2
    decoder_num_heads: int = 4
    decoder_hidden_dim: int | None = None
    mask_ratio: float = 0.75
    norm_pix_loss: bool = True

    def __post_init__(self) -> None:
        for name, value in _FIXED.items():
            found = getattr(self.encoder, name)
            _demand(found == value, f"a masked autoencoder's encoder has {name} {value!r}, not {found!r}: change it")
        _demand(
            self.encoder.global_pool != "map",
            "global_pool 'map' pools by attention, which no masked autoencoder trains: choose 'token' or 'avg'",
        )
        _demand(0 < self.mask_ratio < 1, f"mask_ratio {self.mask_ratio} has to lie between 0 and 1")
        N, K = self.encoder.num_patches, self.num_visible
        _demand(
            0 < K < N,
            f"mask_ratio {self.mask_ratio} leaves {K} of {N} patches visible, and at least 1 has to be visible and 1 "
            "masked: choose another ratio, or smaller patches",
        )
        _demand(
            not self.norm_pix_loss or self.patch_pixels > 1,
            "norm_pix_loss needs patches of more than one number, which alone has no deviation: choose "
            "norm_pix_loss=False, or a larger patch_size",
        )
        _demand(
            self.decoder_depth != 0,
            "decoder_depth 0 lets no mask token see a visible patch, and the encoder learns nothing: choose 1 or more",
        )
        try:
            _ = self.decoder
        except ValueError as error:
            raise ValueError(f"the decoder's {error}") from None

    @cached_property
    def decoder(self) -> vit.Config:
        """The decoder as a Vision Transformer on the same grid: its blocks, positions and norms are taken from here."""
        ratio_kept = self.decoder_embed_dim * self.encoder.hidden // self.encoder.embed_dim
        return vit.Config(
            image_size=self.encoder.image_size, patch_size=self.encoder.patch_size, in_chans=self.encoder.in_chans,
            num_classes=0, embed_dim=self.decoder_embed_dim, depth=self.decoder_depth,
            num_heads=self.decoder_num_heads, hidden_dim=self.decoder_hidden_dim or ratio_kept,
            norm_eps=self.encoder.norm_eps, act=self.encoder.act, pos_embed="sincos_2d_mae",
        )  # fmt: skip

    @property
    def num_visible(self) -> int:
        """K, the number of patches that the encoder sees, rounded down as in the reference code."""
        return int(self.encoder.num_patches * (1 - self.mask_ratio))

    @property
    def num_masked(self) -> int:
        """N - K, the number of patches of an image that are removed and predicted."""
        return self.encoder.num_patches - self.num_visible

    @property
    def patch_pixels(self) -> int:
        """py·px·C, the numbers that make a patch."""
        return math.prod(self.encoder.patch) * self.encoder.in_chans


def _demand(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)
