"""Writing other libraries' layouts: the same model comes back, or it is refused, and the libraries load it."""

from __future__ import annotations

import numpy as np
import pytest

from numpy_vit import tree
from numpy_vit.checkpoints.convert import save_as
from numpy_vit.checkpoints.load import load
from numpy_vit.checks.model_examples import deit_example, vit_example
from numpy_vit.errors import CheckpointError
from numpy_vit.models import deit, vit

SQUARE = {"image_size": 24, "patch_size": 4, "in_chans": 3, "embed_dim": 12, "num_heads": 3, "num_classes": 5}
DINO = {"init_values": 0.1, "hidden_dim": 24}
CASES = {  # target, fields, layout
    "timm": ("timm", {}, "timm"),
    "timm, sin-cos": ("timm", {"pos_embed": "sincos_2d_mae"}, "timm"),
    "timm, registers": ("timm", {"reg_tokens": 2, "no_embed_class": True, "swiglu": True}, "timm"),
    "torchvision": ("torchvision", {"pre_logits": 7}, "torchvision"),
    "hf": ("hf", {"norm_eps": 1e-5, "act": "gelu_tanh"}, "hf-vit"),
    "hf, no qkv bias": ("hf", {"qkv_bias": False}, "hf-vit"),
    "hf, DINOv2": ("hf", {**DINO, "num_classes": 0}, "hf-dinov2"),
    "hf, DINOv2 classifier": ("hf", {**DINO, "global_pool": "token_avg", "swiglu": True}, "hf-dinov2"),
    "hf, DINOv2 registers": (
        "hf", {**DINO, "num_classes": 0, "reg_tokens": 2, "no_embed_class": True}, "hf-dinov2-registers",
    ),
    "hf, SigLIP": ("hf", {"class_token": False, "global_pool": "map", "num_classes": 0}, "hf-siglip"),
    "hf, CLIP": ("hf", {"norm_pre": True, "patch_bias": False, "num_classes": 0}, "hf-clip"),
}  # fmt: skip


def example(fields, model=vit):
    config = (vit_example if model is vit else deit_example)({**SQUARE, **fields})
    rng = np.random.default_rng(0)
    params = tree.map(
        lambda leaf: leaf + 0.3 * rng.standard_normal(leaf.shape).astype(np.float32), model.init(config, rng)
    )
    return config, params, rng.standard_normal((2, 3, 24, 24)).astype(np.float32)


@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
@pytest.mark.parametrize("case", CASES)
def test_the_same_function_comes_back(tmp_path, case, suffix):
    target, fields, layout = CASES[case]
    config, params, images = example(fields)
    path = tmp_path / f"out{suffix}"
    assert save_as(path, config, params, target).name == layout
    arguments = {"num_heads": config.num_heads, "norm_eps": config.norm_eps, "act": config.act}
    found = load(path, **({} if suffix == ".safetensors" else arguments))
    assert found.report.layout == layout
    np.testing.assert_array_equal(found.model.predict(found.params, images, found.config),
                                  vit.predict(params, images, config))  # fmt: skip


@pytest.mark.parametrize("target", ["timm", "hf"])
def test_a_distilled_model(tmp_path, target):
    config, params, images = example({}, deit)
    save_as(tmp_path / "out.safetensors", config, params, target)
    found = load(tmp_path / "out.safetensors")
    assert found.model is deit
    np.testing.assert_array_equal(
        deit.predict(found.params, images, found.config), deit.predict(params, images, config)
    )


@pytest.mark.parametrize(
    ("target", "fields", "message"),
    [
        ("torchvision", {"global_pool": "avg", "fc_norm": False}, "global_pool 'avg'"),
        ("torchvision", {"global_pool": "avg"}, "cannot hold fc_norm.weight"),
        ("torchvision", {"act": "quick_gelu"}, "quick_gelu"),
        ("torchvision", {"reg_tokens": 2}, "cannot hold reg_token"),
        ("torchvision", {"class_token": False, "global_pool": "avg", "fc_norm": False}, "always has cls_token"),
        ("hf", {"class_token": False, "global_pool": "avg", "fc_norm": False}, "always has cls_token"),
        ("hf", {"no_embed_class": True}, "no_embed_class True"),
        ("hf", {"block": "post_norm"}, "post_norm"),
        ("hf", {"qk_norm": True}, "cannot hold blocks.0.attn.q_norm"),
        ("hf", {"patch_bias": False}, "always has patch_embed.proj.bias"),
        ("hf", {"pos_embed": "none"}, "always has pos_embed"),
        ("timm", {"block": "post_norm"}, "timm's VisionTransformer has no block"),
        ("timm", {"pre_logits": 4}, "timm's VisionTransformer has no pre_logits"),
    ],
)
def test_what_a_layout_cannot_say_is_refused(tmp_path, target, fields, message):
    config, params, _ = example(fields)
    with pytest.raises(CheckpointError, match=message):
        save_as(tmp_path / "out.pt", config, params, target)
    assert not list(tmp_path.iterdir())


def test_wrong_suffixes_and_targets(tmp_path):
    config, params, _ = example({})
    with pytest.raises(ValueError, match="suffix"):
        save_as(tmp_path / "out.h5", config, params)
    with pytest.raises(ValueError, match="target 'keras' is unknown"):
        save_as(tmp_path / "out.pt", config, params, "keras")


@pytest.mark.framework
@pytest.mark.parametrize("target", ["timm", "hf", "torchvision"])
def test_the_libraries_load_it_strictly_and_give_our_logits(tmp_path, target):
    torch = pytest.importorskip("torch")
    config, params, images = example({"norm_eps": 1e-6})
    save_as(tmp_path / "out.pt", config, params, target)
    if target == "timm":
        model = pytest.importorskip("timm.models.vision_transformer").VisionTransformer(
            img_size=24, patch_size=4, embed_dim=12, depth=2, num_heads=3, mlp_ratio=10 / 12, num_classes=5
        )
    elif target == "torchvision":
        model = pytest.importorskip("torchvision").models.VisionTransformer(24, 4, 2, 3, 12, 10, num_classes=5)
    else:
        transformers = pytest.importorskip("transformers")
        sizes = {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 10}
        about = transformers.ViTConfig(**sizes, image_size=24, patch_size=4, num_labels=5, layer_norm_eps=1e-6)
        save_as(tmp_path / "model.safetensors", config, params, "hf")
        about.save_pretrained(tmp_path)
        model = transformers.ViTForImageClassification.from_pretrained(tmp_path)
    if target != "hf":
        model.load_state_dict(torch.load(tmp_path / "out.pt", weights_only=True), strict=True)
    with torch.no_grad():
        theirs = model.eval()(torch.tensor(images))
    theirs = (theirs.logits if target == "hf" else theirs).numpy()
    np.testing.assert_allclose(vit.predict(params, images, config), theirs, rtol=1e-4, atol=1e-5)
