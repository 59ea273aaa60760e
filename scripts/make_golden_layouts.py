"""Build a tiny random model for every checkpoint layout, and write golden files of them.

    python scripts/make_golden_layouts.py tests/checkpoints/layouts/golden

writes NAME.safetensors.gz for each case, and expected.json with the arguments for load() and the logits in float64.
The live tests use the same cases.  Needs torch, torchvision, timm, transformers and vit-pytorch; models that are no
package's are built from timm's and renamed to the keys of the repository that is meant.

Parameters are random throughout, norms and biases too, and are float16 numbers, so that the files are small and the
comparison can still be one of float64.
"""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

warnings.filterwarnings("ignore")

import timm.models.deit  # noqa: E402
import timm.models.vision_transformer as timm_vit  # noqa: E402
import torch  # noqa: E402
import torchvision  # noqa: E402
import transformers  # noqa: E402
from torch import nn  # noqa: E402

from numpy_vit.checkpoints import safetensors  # noqa: E402

torch.set_num_threads(1)

D, DEPTH, HEADS, HIDDEN, PATCH, SIDE, K, E = 10, 2, 5, 14, 4, 24, 7, 6
N = (SIDE // PATCH) ** 2
BATCH = 2
State = dict[str, torch.Tensor]


@dataclass
class Case:
    """A model, how to run it, and how its file names its tensors.

    `names` renames, permutes, splits or joins a state dict, and as well the gradients of one.  `arguments` are what
    load() has to be told.  `dropped` are keys of the file that have no gradient.
    """

    module: nn.Module
    run: Callable[[torch.Tensor], Any]
    names: Callable[[State], State] = lambda state: state
    arguments: dict[str, Any] = field(default_factory=dict)

    def tensors(self) -> dict[str, np.ndarray]:
        state = {key: value.detach() for key, value in self.module.state_dict().items()}
        return {key: value.contiguous().numpy() for key, value in self.names(state).items()}

    def gradients(self, outputs: Any, upstream: Any) -> dict[str, np.ndarray]:
        """Return the gradients under the file's names; zeros for what has none."""
        parameters = dict(self.module.named_parameters())
        found = torch.autograd.grad(outputs, list(parameters.values()), upstream, allow_unused=True)
        state = {
            key: torch.zeros_like(leaf) if gradient is None else gradient
            for (key, leaf), gradient in zip(parameters.items(), found, strict=True)
        }
        buffers = {key: torch.zeros_like(b) for key, b in self.module.state_dict().items() if key not in state}
        return {key: value.contiguous().numpy() for key, value in self.names({**state, **buffers}).items()}


def randomised(module: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    module = module.double().eval()
    with torch.no_grad():
        for leaf in module.parameters():
            leaf.requires_grad_(True)  # MAE's positions too
            leaf.copy_((0.4 * torch.randn(leaf.shape)).half().double())
    return module


def images() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((BATCH, 3, SIDE, SIDE))


# timm


def timm_case(arguments: dict[str, Any] | None = None, names: Any = None, kind: Any = None, **options: Any) -> Case:
    sizes = {
        "img_size": SIDE, "patch_size": PATCH, "embed_dim": D, "depth": DEPTH, "num_heads": HEADS,
        "mlp_ratio": HIDDEN / D, "num_classes": K,
    }  # fmt: skip
    model = randomised((kind or timm_vit.VisionTransformer)(**{**sizes, **options}))
    return Case(model, model, names or (lambda state: state), {"num_heads": HEADS, **(arguments or {})})


CLIP = {"pre_norm": True, "norm_layer": partial(nn.LayerNorm, eps=1e-5), "act_layer": "quick_gelu"}
GATED = {"mlp_layer": timm_vit.SwiGLUPacked, "act_layer": nn.SiLU, "mlp_ratio": 2 * HIDDEN / D}
EPS5 = {"norm_layer": partial(nn.LayerNorm, eps=1e-5)}


def distilled() -> Case:
    case = timm_case(kind=timm.models.deit.VisionTransformerDistilled)
    case.module.set_distilled_training(True)

    def run(x: torch.Tensor) -> Any:
        case.module.train()  # no dropout: this only makes it return both
        return case.module(x)

    return Case(case.module, run, case.names, case.arguments)


# Hugging Face


def hf_sizes(**more: Any) -> dict[str, Any]:
    return {
        "hidden_size": D, "num_hidden_layers": DEPTH, "num_attention_heads": HEADS, "intermediate_size": HIDDEN,
        "image_size": SIDE, "patch_size": PATCH, "num_labels": K, "attn_implementation": "sdpa", **more,
    }  # fmt: skip


def hf_case(kind: str, config: Any, output: str = "logits", disk: bool = True, **arguments: Any) -> Case:
    """`disk`: the keys that save_pretrained writes, found by saving; gradients are renamed in the same way."""
    model = randomised(getattr(transformers, kind)(config))

    def run(x: torch.Tensor) -> Any:
        out = model(pixel_values=x)
        if output == "both":
            return out.cls_logits, out.distillation_logits
        if output == "class":  # encoders without a head: their normalised class token
            return out.last_hidden_state[:, 0]
        return getattr(out, output)

    def saved(state: State) -> State:
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder, state_dict=state)
            tensors = safetensors.read(Path(folder) / "model.safetensors")[0]
        return {key: torch.tensor(value) for key, value in tensors.items()}

    return Case(model, run, saved if disk else (lambda state: state), {"num_heads": HEADS, **arguments})


def hf_mae(disk: bool = True) -> Case:
    config = transformers.ViTMAEConfig(
        **hf_sizes(mask_ratio=0.0, decoder_hidden_size=8, decoder_num_hidden_layers=1, decoder_num_attention_heads=2),
        decoder_intermediate_size=6,
    )
    case = hf_case("ViTMAEForPreTraining", config, disk=disk)
    return Case(case.module, lambda x: case.module.vit(x).last_hidden_state[:, 0], case.names, case.arguments)


def dinov2(registers: bool = False, **more: Any) -> Any:
    sizes = hf_sizes(mlp_ratio=2, **more)
    sizes.pop("intermediate_size")
    if registers:
        return transformers.Dinov2WithRegistersConfig(**sizes, num_register_tokens=3)
    return transformers.Dinov2Config(**sizes)


def hf_family(disk: bool) -> dict[str, Callable[[], Case]]:
    t, sizes = transformers, hf_sizes()
    return {
        "vit": lambda: hf_case("ViTForImageClassification", t.ViTConfig(**sizes), disk=disk),
        "vit-bare": lambda: hf_case("ViTModel", t.ViTConfig(**sizes), "class", disk=disk),
        "deit": lambda: hf_case("DeiTForImageClassification", t.DeiTConfig(**sizes), disk=disk),
        "deit-teacher": lambda: hf_case(
            "DeiTForImageClassificationWithTeacher", t.DeiTConfig(**sizes), "both", disk=disk
        ),
        "mae": lambda: hf_mae(disk),
        "dinov2": lambda: hf_case("Dinov2Model", dinov2(), "pooler_output", disk=disk),
        "dinov2-swiglu": lambda: hf_case("Dinov2Model", dinov2(use_swiglu_ffn=True), "pooler_output", disk=disk),
        "dinov2-classifier": lambda: hf_case("Dinov2ForImageClassification", dinov2(), disk=disk),
        "dinov2-registers": lambda: hf_case("Dinov2WithRegistersModel", dinov2(True), "pooler_output", disk=disk),
        "clip": lambda: hf_case(
            "CLIPVisionModelWithProjection", t.CLIPVisionConfig(**sizes, projection_dim=E), "image_embeds", disk=disk
        ),
        "clip-bare": lambda: hf_case("CLIPVisionModel", t.CLIPVisionConfig(**sizes), "pooler_output", disk=disk),
        "siglip": lambda: hf_case("SiglipVisionModel", t.SiglipVisionConfig(**sizes), "pooler_output", disk=disk),
        "siglip-classifier": lambda: hf_case(
            "SiglipForImageClassification", t.SiglipConfig(vision_config=sizes, num_labels=K), disk=disk
        ),
    }


# torchvision


def torchvision_case(representation: int | None = None, old: bool = False) -> Case:
    model = randomised(
        torchvision.models.VisionTransformer(
            image_size=SIDE,
            patch_size=PATCH,
            num_layers=DEPTH,
            num_heads=HEADS,
            hidden_dim=D,
            mlp_dim=HIDDEN,
            num_classes=K,
            representation_size=representation,
        )
    )

    def before_2022(state: State) -> State:
        return {k.replace("mlp.0", "mlp.linear_1").replace("mlp.3", "mlp.linear_2"): v for k, v in state.items()}

    return Case(model, model, before_2022 if old else (lambda state: state), {"num_heads": HEADS})


# timm's models under other names, with other shapes


def replaced(*pairs: tuple[str, str]) -> Callable[[State], State]:
    def names(state: State) -> State:
        renamed = {}
        for key, value in state.items():
            for old, new in pairs:
                key = key.replace(old, new)
            renamed[key] = value
        return renamed

    return names


def facebook_dinov2(state: State) -> State:
    state = replaced(("reg_token", "register_tokens"), ("mlp.fc1", "mlp.w12"), ("mlp.fc2", "mlp.w3"))(state)
    table, token = state["pos_embed"], state["cls_token"]
    row = torch.full_like(token, 0.25)  # the class token's own row, which timm adds to the token
    state["cls_token"], state["pos_embed"] = token - row, torch.cat([row, table], dim=1)
    return {**state, "mask_token": torch.zeros(1, D, dtype=torch.float64)}


def openai_clip(state: State) -> State:
    out = {
        "visual.class_embedding": state["cls_token"].reshape(-1),
        "visual.positional_embedding": state["pos_embed"][0],
        "visual.conv1.weight": state["patch_embed.proj.weight"],
        "visual.proj": state["head.weight"].T,
    }
    pairs = (
        ("norm_pre", "visual.ln_pre"), ("blocks.", "visual.transformer.resblocks."), ("norm1", "ln_1"),
        ("norm2", "ln_2"), ("attn.qkv.", "attn.in_proj_"), ("attn.proj", "attn.out_proj"), ("mlp.fc1", "mlp.c_fc"),
        ("mlp.fc2", "mlp.c_proj"),
    )  # fmt: skip
    blocks = {key: value for key, value in state.items() if key.startswith(("blocks", "norm_pre"))}
    out |= replaced(*pairs)(blocks)
    return {**out, "visual.ln_post.weight": state["norm.weight"], "visual.ln_post.bias": state["norm.bias"]}


def without_head_bias(case: Case) -> Case:
    with torch.no_grad():
        case.module.head.bias.zero_()
    return case


_ORIGINAL = ("LayerNorm_0", "MultiHeadDotProductAttention_1", "LayerNorm_2", "MlpBlock_3")
_LINEN = ("LayerNorm_0", "MultiHeadDotProductAttention_0", "LayerNorm_1", "MlpBlock_0")


def google(state: State, names: tuple[str, ...], prefix: str, table: str, scan: bool = False) -> State:
    """The keys and shapes of flax, written down from its conventions: kernels (in, out), attention (D, H, d)."""
    d = D // HEADS
    out: State = {}

    def dense(key: str, name: str) -> None:
        if f"{name}.weight" in state:
            out[f"{key}/kernel"], out[f"{key}/bias"] = state[f"{name}.weight"].T, state[f"{name}.bias"]

    def norm(key: str, name: str) -> None:
        out[f"{key}/scale"], out[f"{key}/bias"] = state[f"{name}.weight"], state[f"{name}.bias"]

    def attention(key: str, parts: dict[str, tuple[torch.Tensor, torch.Tensor]], proj: str) -> None:
        for part, (weight, bias) in parts.items():
            out[f"{key}/{part}/kernel"] = weight.T.reshape(D, HEADS, d)
            out[f"{key}/{part}/bias"] = bias.reshape(HEADS, d)
        out[f"{key}/out/kernel"] = state[f"{proj}.weight"].T.reshape(HEADS, d, D)
        out[f"{key}/out/bias"] = state[f"{proj}.bias"]

    out["embedding/kernel"] = state["patch_embed.proj.weight"].permute(2, 3, 1, 0)
    out["embedding/bias"] = state["patch_embed.proj.bias"]
    if "cls_token" in state:
        out["cls"] = state["cls_token"]
    out[table] = state["pos_embed"]
    for i in range(DEPTH):
        ours, theirs = f"blocks.{i}", f"Transformer/encoderblock_{i}"
        norm(f"{theirs}/{names[0]}", f"{ours}.norm1")
        thirds = zip(state[f"{ours}.attn.qkv.weight"].split(D), state[f"{ours}.attn.qkv.bias"].split(D), strict=True)
        parts = dict(zip(("query", "key", "value"), thirds, strict=True))
        attention(f"{theirs}/{names[1]}", parts, f"{ours}.attn.proj")
        norm(f"{theirs}/{names[2]}", f"{ours}.norm2")
        dense(f"{theirs}/{names[3]}/Dense_0", f"{ours}.mlp.fc1")
        dense(f"{theirs}/{names[3]}/Dense_1", f"{ours}.mlp.fc2")
    norm("Transformer/encoder_norm", "norm")
    if "attn_pool.latent" in state:
        pool = "MAPHead_0"
        out[f"{pool}/probe"] = state["attn_pool.latent"]
        kv = zip(state["attn_pool.kv.weight"].split(D), state["attn_pool.kv.bias"].split(D), strict=True)
        query = (state["attn_pool.q.weight"], state["attn_pool.q.bias"])
        parts = {"query": query, **dict(zip(("key", "value"), kv, strict=True))}
        attention(f"{pool}/MultiHeadDotProductAttention_0", parts, "attn_pool.proj")
        norm(f"{pool}/LayerNorm_0", "attn_pool.norm")
        dense(f"{pool}/MlpBlock_0/Dense_0", "attn_pool.mlp.fc1")
        dense(f"{pool}/MlpBlock_0/Dense_1", "attn_pool.mlp.fc2")
    dense("head", "head")
    if scan:
        first = [key for key in out if "encoderblock_0/" in key]
        stacks = {key: torch.stack([out[key.replace("_0/", f"_{i}/", 1)] for i in range(DEPTH)]) for key in first}
        out = {key: value for key, value in out.items() if "encoderblock_" not in key}
        out |= {key.replace("encoderblock_0/", "encoderblock/"): value for key, value in stacks.items()}
    return {prefix + key: value for key, value in out.items()}


TANH = {"act_layer": partial(nn.GELU, approximate="tanh")}
AVG = {"class_token": False, "global_pool": "avg"}


# vit-pytorch


def vit_pytorch(simple: bool = False, **options: Any) -> Case:
    import vit_pytorch

    kind = vit_pytorch.SimpleViT if simple else vit_pytorch.ViT
    width = 12 if simple else D  # its computed positions want a multiple of 4
    sizes = {"image_size": SIDE, "patch_size": PATCH, "num_classes": K, "dim": width, "depth": DEPTH, "heads": HEADS}
    model = kind(**{**sizes, "mlp_dim": HIDDEN, "dim_head": 3, **options})
    arguments = {"num_heads": options.get("heads", HEADS)}
    if simple:
        arguments["image_size"] = SIDE
    model = randomised(model)
    if simple:  # its table again, whose frequencies are float32 there
        omega = 10000.0 ** (-torch.arange(width // 4, dtype=torch.float64) / (width // 4 - 1))
        y, x = torch.meshgrid(*2 * [torch.arange(SIDE // PATCH).double()], indexing="ij")
        x, y = x.reshape(-1, 1) * omega, y.reshape(-1, 1) * omega
        table = torch.cat([x.sin(), x.cos(), y.sin(), y.cos()], dim=1)
        assert (table - model.pos_embedding).abs().max() < 1e-5
        model.pos_embedding = table
    return Case(model, model, arguments=arguments)


def old_vit_pytorch(era: str) -> Callable[[State], State]:
    """timm's ViT without qkv bias under the keys of 2021-03 ("fn") or 2020-12 ("fn.fn")."""

    def names(state: State) -> State:
        weight = state["patch_embed.proj.weight"].permute(0, 2, 3, 1).reshape(D, -1)
        first = "patch_to_embedding" if era == "fn.fn" else "to_patch_embedding.1"
        norm = "fn.norm" if era == "fn.fn" else "norm"
        out = {f"{first}.weight": weight, f"{first}.bias": state["patch_embed.proj.bias"]}
        out |= {"cls_token": state["cls_token"], "pos_embedding": state["pos_embed"]}
        for i in range(DEPTH):
            pairs = {
                "norm1": f"0.{norm}", "attn.qkv": f"0.{era}.to_qkv", "attn.proj": f"0.{era}.to_out.0",
                "norm2": f"1.{norm}", "mlp.fc1": f"1.{era}.net.0", "mlp.fc2": f"1.{era}.net.3",
            }  # fmt: skip
            for ours, theirs in pairs.items():
                for part in ("weight", "bias"):
                    if f"blocks.{i}.{ours}.{part}" in state:
                        out[f"transformer.layers.{i}.{theirs}.{part}"] = state[f"blocks.{i}.{ours}.{part}"]
        heads = {"fc_norm": "mlp_head.0", "head": "mlp_head.1"}
        for ours, theirs in heads.items():
            out |= {f"{theirs}.{part}": state[f"{ours}.{part}"] for part in ("weight", "bias")}
        return out

    return names


# hand-made


class Encoder(nn.Module):
    """A ViT around nn.TransformerEncoderLayer."""

    def __init__(self, pre_norm: bool) -> None:
        super().__init__()
        self.patch_embedding = nn.Conv2d(3, D, PATCH, PATCH)
        self.cls_token = nn.Parameter(torch.empty(1, 1, D))
        self.pos_embedding = nn.Parameter(torch.empty(1, N + 1, D))
        act = "gelu" if pre_norm else "relu"
        layer = nn.TransformerEncoderLayer(D, HEADS, HIDDEN, 0.0, act, batch_first=True, norm_first=pre_norm)
        self.transformer = nn.TransformerEncoder(layer, DEPTH, nn.LayerNorm(D) if pre_norm else None, False)
        self.classifier = nn.Linear(D, K)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patch_embedding(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], dim=1) + self.pos_embedding
        return self.classifier(self.transformer(x)[:, 0])


class AttentionBlock(nn.Module):
    """Tutorial (c)'s block."""

    def __init__(self) -> None:
        super().__init__()
        self.ln1 = nn.LayerNorm(D)
        self.attn = nn.MultiheadAttention(D, HEADS, batch_first=True)
        self.ln2 = nn.LayerNorm(D)
        self.mlp = nn.Sequential(nn.Linear(D, HIDDEN), nn.GELU(), nn.Dropout(0), nn.Linear(HIDDEN, D), nn.Dropout(0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.ln1(x)
        x = x + self.attn(h, h, h, need_weights=False)[0]
        return x + self.mlp(self.ln2(x))


class Tutorial(nn.Module):
    """Tutorial (c): patch.proj, ln1, nn.MultiheadAttention, ln2, ln, head."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Module()
        self.patch.proj = nn.Conv2d(3, D, PATCH, PATCH)
        self.cls_token = nn.Parameter(torch.empty(1, 1, D))
        self.pos_embed = nn.Parameter(torch.empty(1, N + 1, D))
        self.blocks = nn.ModuleList(AttentionBlock() for _ in range(DEPTH))
        self.ln = nn.LayerNorm(D)
        self.head = nn.Linear(D, K)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patch.proj(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], dim=1) + self.pos_embed
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln(x)[:, 0])


def tutorial_a(state: State) -> State:
    state = replaced(("mlp.fc1", "mlp.net.0"), ("mlp.fc2", "mlp.net.3"))(state)
    weight = state["patch_embed.proj.weight"]
    return {**state, "patch_embed.proj.weight": weight.reshape(len(weight), -1)}


def handmade(kind: Callable[[], nn.Module]) -> Case:
    model = randomised(kind())
    return Case(model, model, arguments={"num_heads": HEADS})


REG = {"reg_tokens": 3, "no_embed_class": True}
NONE = {"num_classes": 0}
CASES: dict[str, Callable[[], Case]] = {
    "timm": timm_case,
    "timm-avg": lambda: timm_case(**AVG, qkv_bias=False, qk_norm=True),
    "timm-gap": lambda: timm_case(**AVG, fc_norm=False),
    "timm-clip": lambda: timm_case({"act": "quick_gelu"}, **CLIP),
    "timm-siglip": lambda: timm_case({"act": "gelu_tanh"}, class_token=False, global_pool="map", **TANH, **NONE),
    "timm-registers-swiglu": lambda: timm_case(init_values=1e-5, **REG, **GATED, **NONE),
    "deit-distilled": distilled,
    "deit3": lambda: timm_case(
        names=replaced(("ls1.gamma", "gamma_1"), ("ls2.gamma", "gamma_2")), init_values=1e-5, no_embed_class=True
    ),
    "dinov2-registers-swiglu": lambda: timm_case(names=facebook_dinov2, init_values=1e-5, **REG, **GATED, **NONE),
    **{f"hf-{name}": build for name, build in hf_family(True).items()},
    **{f"hf-{name}-memory": build for name, build in hf_family(False).items()},
    "torchvision": torchvision_case,
    "torchvision-old-pre-logits": lambda: torchvision_case(9, old=True),
    "google-augreg": lambda: timm_case(
        names=partial(google, names=_ORIGINAL, prefix="", table="Transformer/posembed_input/pos_embedding"), **TANH
    ),
    "big_vision-gap-scan": lambda: timm_case(
        names=partial(google, names=_LINEN, prefix="params/", table="pos_embedding", scan=True),
        **AVG, fc_norm=False, **TANH,
    ),
    "big_vision-map": lambda: timm_case(
        names=partial(google, names=_LINEN, prefix="params/img/", table="pos_embedding"),
        class_token=False, global_pool="map", **TANH,
    ),
    "openai-clip": lambda: without_head_bias(timm_case(names=openai_clip, **{**CLIP, "num_classes": E})),
    "vit-pytorch": vit_pytorch,
    "vit-pytorch-mean": lambda: vit_pytorch(pool="mean"),
    "vit-pytorch-simple": lambda: vit_pytorch(simple=True),
    "vit-pytorch-2021": lambda: timm_case(names=old_vit_pytorch("fn"), qkv_bias=False, fc_norm=True, **EPS5),
    "vit-pytorch-2020": lambda: timm_case(names=old_vit_pytorch("fn.fn"), qkv_bias=False, fc_norm=True, **EPS5),
    "torch-encoder-pre-norm": lambda: handmade(partial(Encoder, True)),
    "torch-encoder-post-norm": lambda: handmade(partial(Encoder, False)),
    "tutorial-a": lambda: timm_case(names=tutorial_a, **EPS5),
    "tutorial-b": lambda: timm_case(
        names=replaced(("mlp.fc1", "mlp.0"), ("mlp.fc2", "mlp.3")), **EPS5, embed_norm_layer=EPS5["norm_layer"]
    ),
    "tutorial-c": lambda: handmade(Tutorial),
}  # fmt: skip


def main(folder: Path) -> None:
    """Write the golden files, of the layouts on disk."""
    folder.mkdir(parents=True, exist_ok=True)
    expected = {}
    for name, build in CASES.items():
        if name.endswith("-memory"):
            continue
        case = build()
        with torch.no_grad():
            out = case.run(torch.tensor(images()))
        parts = out if isinstance(out, tuple) else (out,)
        logits = (sum(parts) / len(parts)).numpy()  # DeiT's predict averages
        assert np.abs(logits).max() > 1e-2, f"{name}: logits of zeros prove nothing"
        file = folder / "plain"
        safetensors.write(file, {key: half(value) for key, value in case.tensors().items()})
        with gzip.GzipFile(folder / f"{name}.safetensors.gz", "wb", mtime=0) as packed:
            packed.write(file.read_bytes())
        file.unlink()
        expected[name] = {"arguments": case.arguments, "logits": logits.tolist()}
        size = (folder / f"{name}.safetensors.gz").stat().st_size
        print(f"{name}: {size} bytes, logits up to {np.abs(logits).max():.2g}")
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n", "utf-8")


def half(array: np.ndarray) -> np.ndarray:
    """The same numbers in float16, where they are float16 numbers."""
    narrow = array.astype(np.float16)
    return narrow if (narrow == array).all() else array


if __name__ == "__main__":
    main(Path(sys.argv[1]))
