"""The masked autoencoder against the paper's steps written with torch's functions, and against transformers' ViTMAE."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from numpy_vit import tree
from numpy_vit.models import mae, vit

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.framework

SIZES = {"image_size": (6, 12), "patch_size": (2, 4), "in_chans": 2, "num_classes": 0, "embed_dim": 8, "depth": 2,
         "num_heads": 2, "hidden_dim": 10, "pos_embed": "sincos_2d_mae"}  # fmt: skip
CHOICES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "normalised pixels, not square": ({}, {}),
    "plain pixels": ({}, {"norm_pix_loss": False}),
    "grey, few masked": ({"in_chans": 1}, {"mask_ratio": 0.2}),
    "RGB, one visible": ({"in_chans": 3}, {"mask_ratio": 0.88}),
    "RGB, plain pixels, deep decoder": (
        {"in_chans": 3, "depth": 1}, {"mask_ratio": 0.5, "norm_pix_loss": False, "decoder_depth": 3},
    ),
    "tall image, one decoder block": (
        {"image_size": (12, 4), "patch_size": (3, 2), "norm_eps": 1e-3}, {"decoder_depth": 1},
    ),
    "a decoder wider than the encoder": ({}, {"decoder_embed_dim": 12, "decoder_num_heads": 3}),
    "tanh GELU, layer scale, no qkv bias": (
        {"act": "gelu_tanh", "init_values": 0.5, "qkv_bias": False}, {"decoder_hidden_dim": 5},
    ),
}  # fmt: skip


def example(encoder: dict[str, Any], choices: dict[str, Any], batch: int = 3) -> tuple[Any, ...]:
    rng = np.random.default_rng(1)
    config = mae.Config(
        vit.Config(**{**SIZES, **encoder}),
        **{"decoder_embed_dim": 4, "decoder_depth": 2, "decoder_num_heads": 2, **choices},
    )
    params = tree.map(lambda leaf: leaf + 0.3 * rng.standard_normal(leaf.shape), mae.init(config, rng, np.float64))
    images = rng.standard_normal((batch, config.encoder.in_chans, *config.encoder.image))
    return config, params, images, rng.random((batch, config.encoder.num_patches))


def torch_table(rows: int, columns: int, dim: int) -> Any:
    """The columns' angles in the first half of the channels, the rows' in the second; zeros for the class token."""
    table = torch.zeros(1 + rows * columns, dim, dtype=torch.float64)
    for n in range(rows * columns):
        for half, place in enumerate((n % columns, n // columns)):
            for i in range(dim // 4):
                angle = torch.tensor(place / 10000 ** (i / (dim / 4)), dtype=torch.float64)
                table[1 + n, half * dim // 2 + i] = torch.sin(angle)
                table[1 + n, half * dim // 2 + dim // 4 + i] = torch.cos(angle)
    return table


def torch_mae(p: dict[str, Any], images: Any, noise: Any, config: mae.Config) -> tuple[Any, Any, Any]:
    """Loss, prediction and mask (1 where removed), from parameters under their flat names."""
    F = torch.nn.functional
    e, eps, (py, px) = config.encoder, config.encoder.norm_eps, config.encoder.patch

    def linear(name, x):
        return F.linear(x, p[f"{name}.weight"], p.get(f"{name}.bias"))

    def norm(name, x):
        return F.layer_norm(x, x.shape[-1:], p[f"{name}.weight"], p[f"{name}.bias"], eps)

    def block(name, x, heads):
        B, N, D = x.shape
        qkv = linear(f"{name}.attn.qkv", norm(f"{name}.norm1", x)).reshape(B, N, 3, heads, D // heads)
        attended = F.scaled_dot_product_attention(*qkv.permute(2, 0, 3, 1, 4)).transpose(1, 2).reshape(B, N, D)
        x = x + linear(f"{name}.attn.proj", attended) * p.get(f"{name}.ls1.gamma", 1)
        hidden = linear(f"{name}.mlp.fc1", norm(f"{name}.norm2", x))
        hidden = F.gelu(hidden, approximate="tanh" if e.act == "gelu_tanh" else "none")
        return x + linear(f"{name}.mlp.fc2", hidden) * p.get(f"{name}.ls2.gamma", 1)

    projected = F.conv2d(images, p["patch_embed.proj.weight"], p["patch_embed.proj.bias"], stride=(py, px))
    table = torch_table(*e.grid, e.embed_dim)
    x = projected.flatten(2).transpose(1, 2) + table[1:]
    order = torch.argsort(noise, dim=1)
    restore = torch.argsort(order, dim=1)
    keep = int(x.shape[1] * (1 - config.mask_ratio))
    mask = (restore >= keep).double()
    x = torch.gather(x, 1, order[:, :keep, None].expand(-1, -1, e.embed_dim))
    x = torch.cat([(p["cls_token"] + table[:1]).expand(len(x), -1, -1), x], dim=1)
    for i in range(e.depth):
        x = block(f"blocks.{i}", x, e.num_heads)
    x = linear("decoder_embed", norm("norm", x))
    gaps = p["mask_token"].expand(len(x), restore.shape[1] - keep, -1)
    rest = torch.gather(torch.cat([x[:, 1:], gaps], dim=1), 1, restore[..., None].expand(-1, -1, x.shape[2]))
    x = torch.cat([x[:, :1], rest], dim=1) + torch_table(*e.grid, config.decoder_embed_dim)
    for i in range(config.decoder_depth):
        x = block(f"decoder_blocks.{i}", x, config.decoder_num_heads)
    prediction = linear("decoder_pred", norm("decoder_norm", x))[:, 1:]
    target = images.unfold(2, py, py).unfold(3, px, px)  # (B, C, rows, columns, py, px)
    target = target.permute(0, 2, 3, 4, 5, 1).flatten(3).flatten(1, 2)
    if config.norm_pix_loss:
        target = (target - target.mean(-1, keepdim=True)) / (target.var(-1, keepdim=True, unbiased=True) + 1e-6).sqrt()
    loss = (((prediction - target) ** 2).mean(-1) * mask).sum() / mask.sum()
    return loss, prediction, mask


@pytest.mark.parametrize("what", CHOICES)
def test_loss_prediction_and_every_gradient(what: str) -> None:
    config, params, images, noise = example(*CHOICES[what])
    leaves = {key: torch.tensor(leaf, requires_grad=True) for key, leaf in tree.flatten(params).items()}
    theirs, prediction, mask = torch_mae(leaves, torch.tensor(images), torch.tensor(noise), config)
    (1.7 * theirs).backward()
    loss, cache = mae.forward(params, images, config, noise)
    grads = tree.flatten(mae.backward(1.7, cache))
    np.testing.assert_allclose(loss, theirs.item(), rtol=1e-12)
    ours, removed = mae.reconstruct(params, images, config, noise)
    np.testing.assert_allclose(ours, prediction.detach().numpy(), rtol=1e-9, atol=1e-11)
    np.testing.assert_array_equal(removed, mask.numpy() == 1)
    assert grads.keys() == leaves.keys()
    for key, leaf in leaves.items():
        reference = leaf.grad.numpy()
        # The key bias has no gradient: what is left there is rounding.
        assert np.abs(reference).max() > 1e-7 or key.endswith("qkv.bias"), f"{key}: a reference of zeros shows nothing"
        np.testing.assert_allclose(grads[key], reference, rtol=1e-9, atol=1e-9 * np.abs(reference).max(), err_msg=key)


def test_the_comparison_notices_another_order_of_pixels_and_the_biased_variance(monkeypatch: Any) -> None:
    config, params, images, noise = example({"in_chans": 3}, {})
    theirs = torch_mae({k: torch.tensor(v) for k, v in tree.flatten(params).items()},
                       torch.tensor(images), torch.tensor(noise), config)[0].item()  # fmt: skip
    (Y, X), C = config.encoder.image, config.encoder.in_chans
    mixed = images.reshape(3, C, -1)[:, ::-1].reshape(3, C, Y, X)
    assert abs(mae.forward(params, mixed, config, noise)[0] - theirs) > 1e-3
    right = mae.masked_patch_loss.normalised

    def biased(patches: Any) -> Any:
        target, mean, deviation = right(patches)
        factor = np.sqrt(patches.shape[-1] / (patches.shape[-1] - 1))
        return target * factor, mean, deviation / factor

    monkeypatch.setattr(mae.masked_patch_loss, "normalised", biased)
    assert abs(mae.forward(params, images, config, noise)[0] - theirs) > 1e-3


@pytest.mark.parametrize("norm_pix_loss", [True, False])
def test_transformers_has_the_same_loss_and_gradients(norm_pix_loss: bool) -> None:
    transformers = pytest.importorskip("transformers")
    config, params, images, noise = example(
        {"image_size": 12, "patch_size": 4},
        {"norm_pix_loss": norm_pix_loss, "mask_ratio": 0.6, "decoder_hidden_dim": 6},
    )
    model = transformers.ViTMAEForPreTraining(
        transformers.ViTMAEConfig(
            hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=10, image_size=12,
            patch_size=4, num_channels=2, decoder_hidden_size=4, decoder_num_hidden_layers=2,
            decoder_num_attention_heads=2, decoder_intermediate_size=6, mask_ratio=0.6,
            norm_pix_loss=norm_pix_loss, layer_norm_eps=1e-6,
        )
    ).double()  # fmt: skip
    state = in_their_names(tree.flatten(params))
    missing, unexpected = model.load_state_dict({k: torch.tensor(v) for k, v in state.items()}, strict=False)
    tables = {"vit.embeddings.position_embeddings": config.encoder, "decoder.decoder_pos_embed": config.decoder}
    assert set(missing) == set(tables)
    assert not unexpected
    for key, part in tables.items():
        model.state_dict()[key].copy_(torch.tensor(vit.fixed_table(part, np.float64)))
    answer = model(torch.tensor(images), noise=torch.tensor(noise))
    answer.loss.backward()
    loss, cache = mae.forward(params, images, config, noise)
    np.testing.assert_allclose(loss, answer.loss.item(), rtol=1e-11)
    prediction, mask = mae.reconstruct(params, images, config, noise)
    np.testing.assert_allclose(prediction, answer.logits.detach().numpy(), rtol=1e-9, atol=1e-11)
    np.testing.assert_array_equal(mask, answer.mask.numpy() == 1)
    found = {name: leaf.grad.numpy() for name, leaf in model.named_parameters() if leaf.grad is not None}
    grads = in_their_names(tree.flatten(mae.backward(1.0, cache)))
    assert found.keys() - set(tables) == grads.keys()
    for key, gradient in grads.items():
        np.testing.assert_allclose(gradient, found[key], rtol=1e-9, atol=1e-11, err_msg=key)


def in_their_names(flat: dict[str, Any]) -> dict[str, Any]:
    """Rename parameters to transformers' names in memory, and cut qkv into its three."""
    state: dict[str, Any] = {}
    for key, leaf in flat.items():
        for old, new in RENAMES:
            key = key.replace(old, new)
        if key.startswith("decoder_layers"):
            key = f"decoder.{key}"
        elif not key.startswith("decoder."):
            key = f"vit.{key}"
        if ".qkv." in key:
            state |= {
                key.replace(".qkv.", f".{q}_proj."): part for q, part in zip("qkv", np.split(leaf, 3), strict=True)
            }
        else:
            state[key] = leaf
    return state


RENAMES = [
    ("decoder_blocks.", "decoder_layers."), ("decoder_embed", "decoder.decoder_embed"),
    ("decoder_norm", "decoder.decoder_norm"), ("decoder_pred", "decoder.decoder_pred"),
    ("mask_token", "decoder.mask_token"), ("cls_token", "embeddings.cls_token"),
    ("patch_embed.proj", "embeddings.patch_embeddings.projection"), (".attn.proj.", ".attention.o_proj."),
    (".attn.", ".attention."), ("norm1", "layernorm_before"), ("norm2", "layernorm_after"), ("blocks.", "layers."),
    ("norm.weight", "layernorm.weight"), ("norm.bias", "layernorm.bias"),
    ("decoder_layernorm", "decoder_norm"),
]  # fmt: skip
