"""The masked autoencoder of He et al. 2022, "Masked autoencoders are scalable vision learners" (MAE).

Most patches of an image are removed.  A Vision Transformer encodes the rest; a small decoder gets its tokens, with a
mask token in every gap, and predicts the pixels that are missing.  Afterwards the encoder is an ordinary ViT.

Shapes: images (B, C, Y, X), N patches of P = py·px·C pixels of which K are visible, width D, the decoder's width E.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import DTypeLike

from numpy_vit import tree
from numpy_vit.layers import (
    encoder,
    initial,
    layernorm,
    linear,
    mask_tokens,
    masked_patch_loss,
    patchify,
    position_table,
    random_masking,
)
from numpy_vit.layers.recording import Take, ignore
from numpy_vit.models import vit
from numpy_vit.models.mae_config import Config
from numpy_vit.tree import Array, Cache, Params

__all__ = ["Config", "backward", "complete", "encoder_params", "forward", "images_of", "init", "patches_of",
           "reconstruct"]  # fmt: skip
_PREFIX = 1  # the class token


def init(config: Config, rng: np.random.Generator, dtype: DTypeLike = np.float32) -> Params:
    """Return a model's parameters before training, under the reference code's names.

    Both sin-cos tables are fixed, so they are no parameters: vit.fixed_table makes them from config.encoder and
    config.decoder.

    Source: the reference code's initialize_weights: weights are uniform after Glorot and Bengio 2010 (the patch
    projection's as a matrix), both tokens normal of deviation 0.02, biases zero, that of the projection too, which the
    reference code leaves as PyTorch draws it.
    """
    D, E = config.encoder.embed_dim, config.decoder.embed_dim
    bare = replace(config.encoder, num_classes=0, global_pool="token", fc_norm=None, pre_logits=None)
    params = vit.init(bare, rng, dtype)
    params["decoder_embed"] = linear.init(D, E, rng, dtype=dtype)
    params |= mask_tokens.init(E, rng, dtype)
    params["decoder_blocks"] = encoder.init(E, config.decoder.hidden, config.decoder.blocks, rng, dtype)
    params["decoder_norm"] = layernorm.init(E, dtype)
    params["decoder_pred"] = linear.init(E, config.patch_pixels, rng, dtype=dtype)

    def drawn(leaf: Array) -> Array:
        if leaf.ndim == 1:  # biases and what scales
            return leaf
        if leaf.ndim == 3:  # tokens
            return initial.normal(leaf.shape, rng, 0.02, dtype)
        bound = math.sqrt(6 / (len(leaf) + math.prod(leaf.shape[1:])))
        return rng.uniform(-bound, bound, leaf.shape).astype(dtype)

    redrawn: Params = tree.map(drawn, params)
    return redrawn


def forward(
    params: Params,
    images: Array,
    config: Config,
    noise: Array,
    rng: np.random.Generator | None = None,
    denominator: float | None = None,
) -> tuple[Array, Cache]:
    """Return the loss of predicting the pixels of the removed patches from the visible ones.

    Parameters
    ----------
    params : as from `init`, in the dtype in which everything is computed
    images : (B, C, Y, X)
    noise : (B, N), which patches stay: those with the least of it.  ``rng.random((B, N))`` as a rule
    rng : draws the encoder's dropout and drop path; None turns them off
    denominator : of the loss.  None means the number of masked patches, B·(N-K); shards of a batch are given the whole
        batch's, so that losses and gradients add up

    Returns
    -------
    loss : 0-d

    Raises
    ------
    ValueError : images or noise of another shape than the configuration says.

    Source: He et al. 2022, section 3.
    """
    visible, restore = _masking(images, config, noise)
    x, c_embed = vit.embed(params, images, config.encoder, rng, ignore)  # (B, 1+N, D)
    x, c_masking = random_masking.forward(x, visible, _PREFIX)  # (B, 1+K, D)
    x, c_blocks = encoder.forward(params["blocks"], x, config.encoder.block_forms(True), config.encoder.blocks, rng)
    x, c_between = _between(params, x, config, restore)  # (B, 1+N, E)
    x, c_decoder = encoder.forward(params["decoder_blocks"], x, config.decoder.block_forms(True), config.decoder.blocks)
    prediction, c_pixels = _pixels(params, x, config)  # (B, N, P)
    target, mask = _target(images, config), restore >= config.num_visible
    loss, c_loss = masked_patch_loss.forward(prediction, target, mask, denominator)
    return loss, (c_embed, c_masking, c_blocks, c_between, c_decoder, c_pixels, c_loss)


def backward(dloss: Array | float, cache: Cache, take: Take | None = None) -> Params:
    """Return the gradients, under the parameters' names; there is no gradient of the images.

    (1) loss = distance(prediction, target) over the removed patches: dprediction, zero for visible patches
    (2) prediction = pred ∘ norm ∘ decoder blocks: the class token predicts no pixels, so its gradient starts as zero
    (3) the decoder's input is the encoder's output, embedded, with mask tokens in the gaps: the gradient of visible
        places goes on to the encoder, that of the gaps is summed to the mask token's
    (4) x_L = blocks(x_0): as in any ViT, on K patches
    (5) x_0 is a gather of [cls, patches] + positions: its adjoint, a scatter, gives removed patches a zero gradient
    (6) the class token's and the projection's gradients are summed over the batch; fixed positions have none

    Parameters
    ----------
    take : where given, receives the gradients part by part, as soon as they are known: ("decoder_blocks.1", grads),
        ("blocks.3", grads), the others at once as ("", grads).  Then none are returned
    """
    c_embed, c_masking, c_blocks, c_between, c_decoder, c_pixels, c_loss = cache
    dprediction = masked_patch_loss.backward(dloss, c_loss)  # (1)
    dx, grads = _pixels_backward(dprediction, c_pixels)  # (2)
    dx, grads["decoder_blocks"] = encoder.backward(dx, c_decoder, take, "decoder_blocks")  # (2)
    dx, dbetween = _between_backward(dx, c_between)  # (3)
    dx, grads["blocks"] = encoder.backward(dx, c_blocks, take)  # (4)
    dx = random_masking.backward(dx, c_masking)  # (5)
    _, dembed = vit.embed_backward(dx, c_embed, input_grad=False)  # (6)
    return vit.hand_over(grads | dbetween | dembed, take)


def reconstruct(params: Params, images: Array, config: Config, noise: Array) -> tuple[Array, Array]:
    """Return the prediction and the mask without keeping what a backward would need: memory is that of one block.

    Parameters
    ----------
    images, noise : as in `forward`

    Returns
    -------
    prediction : (B, N, P), in the order (row, column, channel); normalised where the configuration says norm_pix_loss
    mask : (B, N), true where the patch was removed
    """
    visible, restore = _masking(images, config, noise)
    x = encoder.predict(
        params["blocks"],
        random_masking.forward(vit.embed(params, images, config.encoder, None, ignore)[0], visible, _PREFIX)[0],
        config.encoder.block_forms(True),
        config.encoder.blocks,
    )
    x = encoder.predict(
        params["decoder_blocks"],
        _between(params, x, config, restore)[0],
        config.decoder.block_forms(True),
        config.decoder.blocks,
    )
    return _pixels(params, x, config)[0], restore >= config.num_visible


def complete(images: Array, prediction: Array, mask: Array, config: Config) -> Array:
    """Return the images with the prediction in place of the removed patches.

    A normalised prediction lacks each patch's brightness and contrast; those are taken from the image itself.

    Parameters
    ----------
    images : (B, C, Y, X)
    prediction, mask : (B, N, P) and (B, N), as from `reconstruct`
    """
    patches = patches_of(images, config)
    if config.norm_pix_loss:
        _, mean, deviation = masked_patch_loss.normalised(patches)
        prediction = prediction * deviation + mean
    return images_of(np.where(mask[..., None], prediction, patches), config)


def encoder_params(params: Params, config: Config) -> tuple[Params, vit.Config]:
    """Return the encoder as an ordinary Vision Transformer without a head, for probing and fine-tuning.

    It pools as config.encoder says, after the norm that pretraining has trained.  The arrays are shared, not copied.
    """
    names = ("cls_token", "patch_embed", "norm_pre", "blocks", "norm")
    whole = replace(config.encoder, num_classes=0, fc_norm=False, pre_logits=None)
    return {name: params[name] for name in names if name in params}, whole


def patches_of(images: Array, config: Config) -> Array:
    """Cut images (B, C, Y, X) into patches (B, N, py·px·C) of the order (row, column, channel).

    That is the order of the reference code's target; a convolution's, and so the projection's, is (channel, row,
    column).
    """
    patches, _ = patchify.forward(images, config.encoder.patch)  # (B, N, C·py·px)
    B, N, P = patches.shape
    C = config.encoder.in_chans
    reordered: Array = patches.reshape(B, N, C, P // C).swapaxes(2, 3).reshape(B, N, P)
    return reordered


def images_of(patches: Array, config: Config) -> Array:
    """Put patches (B, N, py·px·C) of the order (row, column, channel) together to images: `patches_of`'s inverse."""
    B, N, P = patches.shape
    C = config.encoder.in_chans
    patches = patches.reshape(B, N, P // C, C).swapaxes(2, 3).reshape(B, N, P)
    return patchify.unpatchify(patches, (C, *config.encoder.image), config.encoder.patch)


def _masking(images: Array, config: Config, noise: Array) -> tuple[Array, Array]:
    """The visible patches (B, K), and the shuffled place of each patch (B, N)."""
    if noise.shape != (len(images), config.encoder.num_patches):
        raise ValueError(
            f"noise {noise.shape} has to have one number for each patch of each image, "
            f"({len(images)}, {config.encoder.num_patches})"
        )
    shuffle, restore = random_masking.orders(noise)
    return shuffle[:, : config.num_visible], restore


def _target(images: Array, config: Config) -> Array:
    patches = patches_of(images, config)
    return masked_patch_loss.normalised(patches)[0] if config.norm_pix_loss else patches


def _between(params: Params, x: Array, config: Config, restore: Array) -> tuple[Array, Cache]:
    """What the encoder's blocks return to what the decoder's take."""
    x, c_norm = layernorm.forward(params["norm"], x, config.encoder.norm_eps)
    x, c_embed = linear.forward(params["decoder_embed"], x)  # (B, 1+K, E)
    x, c_tokens = mask_tokens.forward(params, x, restore, _PREFIX)  # (B, 1+N, E)
    x, _ = position_table.forward({"pos_embed": vit.fixed_table(config.decoder, x.dtype)}, x)
    return x, (c_norm, c_embed, c_tokens)


def _between_backward(dx: Array, cache: Cache) -> tuple[Array, Params]:
    c_norm, c_embed, c_tokens = cache
    dx, grads = mask_tokens.backward(dx, c_tokens)  # dx passes the positions unchanged
    dx, grads["decoder_embed"] = linear.backward(dx, c_embed)
    dx, grads["norm"] = layernorm.backward(dx, c_norm)
    return dx, grads


def _pixels(params: Params, x: Array, config: Config) -> tuple[Array, Cache]:
    """The decoder's tokens to pixels."""
    x, c_norm = layernorm.forward(params["decoder_norm"], x, config.decoder.norm_eps)
    x, c_pred = linear.forward(params["decoder_pred"], x[:, _PREFIX:])  # (B, N, P)
    return x, (c_norm, c_pred)


def _pixels_backward(dprediction: Array, cache: Cache) -> tuple[Array, Params]:
    c_norm, c_pred = cache
    grads: Params = {}
    dx, grads["decoder_pred"] = linear.backward(dprediction, c_pred)
    dx = np.pad(dx, ((0, 0), (_PREFIX, 0), (0, 0)))  # the class token's
    dx, grads["decoder_norm"] = layernorm.backward(dx, c_norm)
    return dx, grads
