"""Mistakes planted in a Vision Transformer written in PyTorch: each is named, with the first tensor that differs.

The model has the usual names, so that its weights are a checkpoint for ours; its norms, biases and positions are away
from their defaults.  Correct models, timm's in four formats, are called the same.
"""

from __future__ import annotations

import numpy as np
import pytest

from numpy_vit.checks import live
from numpy_vit.checks.compare import compare
from numpy_vit.checks.input_causes import Preprocessing
from numpy_vit.checks.opening import gradients_of, port_of_params, port_of_state
from numpy_vit.models import vit
from numpy_vit.tree import unflatten

torch = pytest.importorskip("torch")
torch.set_num_threads(1)
nn, F = torch.nn, torch.nn.functional

pytestmark = pytest.mark.framework

B, C, SIDE, P, D, H, HIDDEN, K = 3, 3, 12, 4, 24, 3, 40, 7
CONFIG = vit.Config(
    image_size=SIDE, patch_size=P, in_chans=C, num_classes=K, embed_dim=D, depth=2, num_heads=H, hidden_dim=HIDDEN
)
FORMS = {"tanh gelu": "tanh"}


class PatchEmbed(nn.Module):
    def __init__(self, faults):
        super().__init__()
        self.faults, self.proj = faults, nn.Conv2d(C, D, P, P)

    def forward(self, x):
        weight = self.proj.weight
        if "bgr" in self.faults:
            x = x.flip(1)
        if "image transposed" in self.faults:
            x = x.transpose(2, 3)
        if "kernel transposed" in self.faults:
            weight = weight.transpose(2, 3)
        if "patch order" in self.faults:
            G = SIDE // P
            patches = x.reshape(len(x), C, G, P, G, P).permute(0, 2, 4, 3, 5, 1).reshape(len(x), G * G, -1)
            return patches @ weight.reshape(D, -1).T + self.proj.bias
        return F.conv2d(x, weight, self.proj.bias, P).flatten(2).transpose(1, 2)


class Attention(nn.Module):
    def __init__(self, faults):
        super().__init__()
        self.faults = faults
        self.qkv, self.proj = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.drop = nn.Dropout(0.2)

    def forward(self, x):
        N, heads, faults = x.shape[1], 2 * H if "heads" in self.faults else H, self.faults
        y = F.linear(x, self.qkv.weight) if "no qkv bias" in faults else self.qkv(x)
        thirds = y.reshape(len(x), N, 3, heads, -1).permute(2, 0, 3, 1, 4)
        q, k, v = thirds
        if "interleaved" in faults:
            q, k, v = y.reshape(len(x), N, heads, 3, -1).permute(3, 0, 2, 1, 4)
        if "k q v" in faults:
            k, q, v = thirds
        if "v q k" in faults:
            v, q, k = thirds
        scores = q @ k.transpose(-1, -2) * (D if "scale" in faults else D / heads) ** -0.5
        weights = scores.softmax(-1)
        if "dropout" in faults:
            weights = self.drop(weights)
        o = (weights @ v).permute(0, 2, 3, 1) if "merge" in faults else (weights @ v).transpose(1, 2)
        weight = self.proj.weight.T if "proj transposed" in faults else self.proj.weight
        return F.linear(o.reshape(len(x), N, D), weight, self.proj.bias)


class Mlp(nn.Module):
    def __init__(self, faults):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(D, HIDDEN), nn.Linear(HIDDEN, D)
        self.act = nn.GELU("tanh" if "tanh gelu" in faults else "none")
        if "quick gelu" in faults:
            self.act = Quick()
        if "no activation" in faults:
            self.act = nn.Identity()

    def forward(self, x):
        return self.fc2(self.act(self.fc1(x)))


class Quick(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(1.702 * x)


class Norm(nn.LayerNorm):
    def __init__(self, faults):
        eps = {"eps 1e-5": 1e-5, "eps 1e-12": 1e-12}
        super().__init__(D, next((eps[fault] for fault in faults if fault in eps), 1e-6))
        self.faults = faults

    def forward(self, x):
        if "unbiased" not in self.faults:
            return super().forward(x)
        return (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True) + self.eps).sqrt() * self.weight + self.bias


class Block(nn.Module):
    def __init__(self, faults):
        super().__init__()
        self.faults = faults
        self.norm1, self.attn, self.norm2, self.mlp = Norm(faults), Attention(faults), Norm(faults), Mlp(faults)

    def forward(self, x):
        if "post-norm" in self.faults:
            x = self.norm1(x + self.attn(x))
            return self.norm2(x + self.mlp(x))
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Model(nn.Module):
    def __init__(self, faults):
        super().__init__()
        self.faults = faults
        self.cls_token, self.pos_embed = (nn.Parameter(torch.empty(1, n, D)) for n in (1, 1 + (SIDE // P) ** 2))
        self.patch_embed, self.pos_drop = PatchEmbed(faults), nn.Identity()
        self.blocks = nn.ModuleList(Block(faults) for _ in range(2))
        self.norm, self.head = Norm(faults), nn.Linear(D, K)

    def forward(self, x):
        faults, table = self.faults, self.pos_embed
        x = torch.cat([self.cls_token.expand(len(x), 1, D), self.patch_embed(x)], 1)
        if "class position last" in faults:
            table = table.roll(1, 1)
        if "positions transposed" in faults:
            grid = table[:, 1:].reshape(1, SIDE // P, SIDE // P, D).transpose(1, 2)
            table = torch.cat([table[:, :1], grid.reshape(1, -1, D)], 1)
        if "positions on patches" in faults:
            table = torch.cat([0 * table[:, :1], table[:, 1:]], 1)
        x = self.pos_drop(x if "no positions" in faults else x + table)
        for block in self.blocks:
            x = block(x)
        if "no final norm" not in faults:
            x = self.norm(x)
        if "final norm twice" in faults:
            x = self.norm(x)
        if "mean of patches" in faults:
            return self.head(x[:, 1:].mean(1))
        return self.head(x.mean(1) if "mean of all" in faults else x[:, 0])


def reference(*faults, dtype="float32", seed=0, raw=None, images=None, change=None):
    """What a model with these faults computes, and our model of its weights."""
    generator = torch.Generator().manual_seed(seed)
    model = Model(faults).eval()
    with torch.no_grad():
        for name, leaf in model.named_parameters():
            leaf.copy_(0.2 * torch.randn(leaf.shape, generator=generator) + (1 if "norm" in name else 0))
        model.pos_embed.mul_(0.5), model.cls_token.mul_(0.5), model.patch_embed.proj.weight.mul_(0.2)
        for block in model.blocks:
            block.attn.qkv.weight.mul_(2), block.attn.proj.bias.mul_(3)
    if "dropout" in faults:
        model.train()
    port = port_of_params(unflatten(live.state(model)), CONFIG)
    rng = np.random.default_rng(seed)
    if images is None:
        images = rng.standard_normal((B, C, SIDE, SIDE))
    found = live.trace(model, images, rng.standard_normal((B, K)), dtype, raw=raw)
    return port, found


def named(comparison):
    return [(cause.tensor, cause.name) for cause in comparison.causes]


PLANTED = {
    "eps 1e-5": ("blocks.0.norm1", "eps 1e-05"),
    "tanh gelu": ("blocks.0.mlp.act", "activation gelu_tanh"),
    "quick gelu": ("blocks.0.mlp.act", "activation quick_gelu"),
    "no activation": ("blocks.0.mlp.act", "activation none"),
    "k q v": ("blocks.0.attn", "qkv order k q v"),
    "v q k": ("blocks.0.attn", "qkv order v q k"),
    "interleaved": ("blocks.0.attn", "qkv interleaved (heads, 3, d)"),
    "merge": ("blocks.0.attn", "heads merged (d, heads)"),
    "patch order": ("patch_embed", "patch order (row, col, c)"),
    "kernel transposed": ("patch_embed", "patch rows and columns swapped"),
    "image transposed": ("patch_embed", "image transposed"),
    "bgr": ("patch_embed", "RGB and BGR"),
    "proj transposed": ("blocks.0.attn", "attn.proj transposed"),
    "class position last": ("pos_drop", "class position last"),
    "positions transposed": ("pos_drop", "positions transposed"),
    "positions on patches": ("pos_drop", "class position missing"),
    "no positions": ("pos_drop", "positions missing"),
    "no final norm": ("logits", "final norm missing"),
    "final norm twice": ("norm", "final norm doubled"),
    "mean of patches": ("logits", "pooling avg"),
    "mean of all": ("logits", "pooling avg of all tokens"),
    "scale": ("blocks.0.attn", "scale D^-0.5"),
    "heads": ("blocks.0.attn", "6 heads"),
    "no qkv bias": ("blocks.0.attn", "attn.qkv.bias missing"),
    "unbiased": ("blocks.0.norm1", "unbiased variance"),
    "post-norm": ("blocks.0.norm1", "post_norm blocks"),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_mistake_is_named(fault):
    port, found = reference(fault)
    comparison = compare(port, found)
    assert not comparison.same
    assert named(comparison) == [PLANTED[fault]]
    cause = comparison.causes[0]
    assert cause.after < 1e-5 < cause.before or cause.after < cause.before / 30


PAIRS = [
    ("tanh gelu", "eps 1e-5"), ("interleaved", "no final norm"), ("class position last", "bgr"),
    ("bgr", "kernel transposed"), ("scale", "proj transposed"), ("v q k", "mean of patches"), ("heads", "merge"),
]  # fmt: skip


@pytest.mark.parametrize("pair", PAIRS, ids=" and ".join)
def test_two_mistakes_at_once_are_both_named(pair):
    port, found = reference(*pair)
    comparison = compare(port, found)
    names = " and ".join(name for _, name in named(comparison))
    assert sorted(names.split(" and ")) == sorted(" and ".join(PLANTED[fault][1] for fault in pair).split(" and "))
    order = ["patch_embed", "pos_drop", "blocks.0.norm1", "blocks.0.attn", "blocks.0.mlp.act", "norm", "logits"]
    assert comparison.first == min((PLANTED[fault][0] for fault in pair), key=order.index)


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
@pytest.mark.parametrize("seed", range(3))
def test_the_model_without_mistakes_is_the_same(dtype, seed):
    comparison = compare(*reference(dtype=dtype, seed=seed))
    comparison.raise_if_different()
    assert len(comparison.rows) > 50


def test_eps_1e_12_is_told_in_float64():
    port, found = reference("eps 1e-12", dtype="float64")
    assert named(compare(port, found)) == [("blocks.0.norm1", "eps 1e-12")]


@pytest.mark.parametrize("fault", ["interleaved", "no final norm", "class position last", "patch order"])
def test_structural_mistakes_are_named_in_bfloat16(fault):
    port, found = reference(fault, dtype="bfloat16")
    assert named(compare(port, found)) == [PLANTED[fault]]


def test_dropout_left_on_shows_in_two_runs():
    port, found = reference("dropout")
    comparison = compare(port, found)
    assert named(comparison) == [("blocks.0.attn", "dropout left on")]
    assert "model.eval()" in str(comparison)


def test_the_wrong_mean_std_and_channel_order_are_named_from_the_raw_picture():
    raw = np.random.default_rng(1).integers(0, 256, (B, SIDE, SIDE, C), np.uint8)
    imagenet = np.array([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]]).reshape(2, 3, 1, 1)
    pictures = np.moveaxis(raw, -1, 1).astype(np.float64)
    images = (pictures[:, ::-1] / 255 - imagenet[0]) / imagenet[1]
    port, found = reference("tanh gelu", raw=raw, images=images)
    comparison = compare(port, found, preprocessing=Preprocessing((0.5,) * 3, (0.5,) * 3, {"": pictures}))
    assert named(comparison) == [("images", "RGB and BGR and mean and std"), PLANTED["tanh gelu"]]


def test_gradients_of_a_mean_loss_and_a_frozen_norm_are_named():
    port, found = reference()
    gradients = {key: leaf / B for key, leaf in found.gradients.items()}
    assert "divided by the batch" in str(compare(port, found, gradients))
    gradients = {**found.gradients, "blocks.1.norm2.weight": np.zeros(D)}
    comparison = compare(port, found, gradients)
    assert comparison.first == "gradient of blocks.1.norm2.weight"
    assert "never computed" in str(comparison)


TIMM = {
    "token": {}, "avg": {"global_pool": "avg"}, "layer scale": {"init_values": 0.1}, "q and k norm": {"qk_norm": True},
    "registers": {"reg_tokens": 2}, "no qkv bias": {"qkv_bias": False}, "deep": {"depth": 8},
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
@pytest.mark.parametrize("case", TIMM)
def test_timm_s_models_are_the_same(case, dtype):
    timm_vit = pytest.importorskip("timm.models.vision_transformer")
    torch.manual_seed(1)
    fields = {"depth": 2, "num_heads": 3, "num_classes": K, "embed_dim": D, "patch_size": P, **TIMM[case]}
    model = timm_vit.VisionTransformer(img_size=16, mlp_ratio=2, **fields).eval()
    with torch.no_grad():
        for name, leaf in model.named_parameters():
            leaf.add_(0.1 * torch.randn_like(leaf) * (3 if "pos" in name else 1))
    port = port_of_params(unflatten(live.state(model)), vit.Config(image_size=16, hidden_dim=2 * D, **fields))
    rng = np.random.default_rng(0)
    found = live.trace(model, rng.standard_normal((2, C, 16, 16)), rng.standard_normal((2, K)), dtype)
    compare(port, found).raise_if_different()


def _hugging_face(name):
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": D, "num_hidden_layers": 2, "num_attention_heads": H, "image_size": 16, "patch_size": P}
    if name == "Dinov2ForImageClassification":
        config = transformers.Dinov2Config(**sizes, mlp_ratio=2, num_labels=K)
    elif name == "CLIPVisionModelWithProjection":
        config = transformers.CLIPVisionConfig(**sizes, intermediate_size=HIDDEN, projection_dim=K)
    elif name == "DeiTForImageClassificationWithTeacher":
        config = transformers.DeiTConfig(**sizes, intermediate_size=HIDDEN, num_labels=K)
    else:
        config = transformers.ViTConfig(**sizes, intermediate_size=HIDDEN, num_labels=K)
    return getattr(transformers, name)(config)


def _torchvision(representation):
    module = pytest.importorskip("torchvision.models.vision_transformer")
    return module.VisionTransformer(16, P, 2, H, D, HIDDEN, num_classes=K, representation_size=representation)


LIBRARIES = {
    "hf ViT": lambda: _hugging_face("ViTForImageClassification"),
    "hf DeiT": lambda: _hugging_face("DeiTForImageClassificationWithTeacher"),
    "hf Dinov2": lambda: _hugging_face("Dinov2ForImageClassification"),
    "hf CLIP": lambda: _hugging_face("CLIPVisionModelWithProjection"),
    "torchvision": lambda: _torchvision(None),
    "torchvision with pre_logits": lambda: _torchvision(9),
}


@pytest.mark.parametrize("library", LIBRARIES)
def test_other_libraries_models_are_the_same_under_timm_s_names(library):
    torch.manual_seed(0)
    model = LIBRARIES[library]().eval()
    with torch.no_grad():
        for leaf in model.parameters():
            leaf.add_(0.1 * torch.randn_like(leaf))
    eps = {"norm_eps": 1e-12} if library in ("hf ViT", "hf DeiT") else {}
    port = port_of_state(live.state(model), num_heads=H, **eps)
    rng = np.random.default_rng(0)
    images = rng.standard_normal((2, C, 16, 16)).astype(np.float32)
    found = live.trace(model, images, live.random_upstream(model, images, rng))
    comparison = compare(port, found, gradients_of(found, port))
    comparison.raise_if_different()
    names = {row.name for row in comparison.rows}
    assert {"patch_embed", "blocks.0.norm1", "blocks.0.attn", "blocks.1.mlp", "blocks.1", "logits"} <= names
    assert {f"gradient of {key}" for key in port.params} - names <= {"gradient of head.bias"}
