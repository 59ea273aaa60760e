"""The Vision Transformer against timm's: state-dict names, logits, every intermediate and every gradient.

Our flattened parameters are loaded into timm's model strictly, so they have its names and shapes.  Everything is
random and away from its defaults, and all sizes differ, so that nothing can hide behind a one, a zero or a square.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from numpy_vit import tree
from numpy_vit.models import vit, vit_config

torch = pytest.importorskip("torch")
timm = pytest.importorskip("timm")
timm_vit = pytest.importorskip("timm.models.vision_transformer")
torch.set_num_threads(1)

pytestmark = pytest.mark.framework

B, K, D, HIDDEN = 5, 7, 12, 18
SIZES = {
    "image_size": (12, 25), "patch_size": (4, 5), "in_chans": 2, "num_classes": K, "embed_dim": D, "depth": 2,
    "num_heads": 3, "hidden_dim": HIDDEN,
}  # fmt: skip
THEIR_SIZES = {
    "img_size": (12, 25), "patch_size": (4, 5), "in_chans": 2, "num_classes": K, "embed_dim": D, "depth": 2,
    "num_heads": 3, "mlp_ratio": HIDDEN / D,
}  # fmt: skip
VALUE, GRADIENT, SINGLE = 1e-12, 1e-10, 2e-5

NORM = timm_vit.LayerNorm
CLIP_NORM = partial(torch.nn.LayerNorm, eps=1e-5)
GATED = {"mlp_layer": timm_vit.SwiGLUPacked, "act_layer": torch.nn.SiLU, "mlp_ratio": 2 * HIDDEN / D}
TANH = partial(torch.nn.GELU, approximate="tanh")
AVERAGE = {"global_pool": "avg", "class_token": False}

# what differs from the sizes above: our fields, timm's arguments
CASES = {
    "token": ({}, {}),
    "avg with class token": ({"global_pool": "avg"},) * 2,
    "avg without class token": (AVERAGE,) * 2,
    "avg, norm before pooling": ({"global_pool": "avg", "fc_norm": False},) * 2,
    "token, norm after pooling": ({"fc_norm": True},) * 2,
    "map": ({"global_pool": "map"},) * 2,
    "map without class token": ({"global_pool": "map", "class_token": False},) * 2,
    "map, registers, norm after pooling": ({"global_pool": "map", "reg_tokens": 2, "fc_norm": True},) * 2,
    "registers": ({"reg_tokens": 4},) * 2,
    "registers, avg": ({"reg_tokens": 4, "global_pool": "avg"},) * 2,
    "registers without class token": ({"reg_tokens": 4, **AVERAGE},) * 2,
    "no_embed_class": ({"no_embed_class": True},) * 2,
    "no_embed_class, registers": ({"no_embed_class": True, "reg_tokens": 3},) * 2,
    "no positions": ({"pos_embed": "none"},) * 2,
    "no final norm": ({"final_norm": False},) * 2,
    "no head": ({"num_classes": 0},) * 2,
    "one block": ({"depth": 1},) * 2,
    "no block": ({"depth": 0, **AVERAGE},) * 2,
    "five blocks": ({"depth": 5},) * 2,
    "one head": ({"num_heads": 1},) * 2,
    "norm_pre": ({"norm_pre": True, "patch_bias": False}, {"pre_norm": True}),
    "layer scale": ({"init_values": 0.1},) * 2,
    "q and k norms": ({"qk_norm": True},) * 2,
    "no qkv bias": ({"qkv_bias": False},) * 2,
    "swiglu": ({"swiglu": True}, GATED),
    "quick gelu": ({"act": "quick_gelu"}, {"act_layer": "quick_gelu"}),
    "tanh gelu": ({"act": "gelu_tanh"}, {"act_layer": TANH}),
    "tanh gelu, map": ({"act": "gelu_tanh", "global_pool": "map"}, {"act_layer": TANH, "global_pool": "map"}),
    "eps 1e-5": ({"norm_eps": 1e-5}, {"norm_layer": CLIP_NORM}),
    "patch norm": ({"patch_norm": True}, {"embed_norm_layer": NORM}),
    "CLIP": (
        {"norm_pre": True, "patch_bias": False, "norm_eps": 1e-5, "act": "quick_gelu"},
        {"pre_norm": True, "norm_layer": CLIP_NORM, "act_layer": "quick_gelu"},
    ),
    "DINOv2 giant with registers": (
        {"swiglu": True, "init_values": 1e-5, "reg_tokens": 4, "no_embed_class": True, "num_classes": 0},
        {**GATED, "init_values": 1e-5, "reg_tokens": 4, "no_embed_class": True, "num_classes": 0},
    ),
}


def config_of(case, **changes):
    return vit.Config(**{**SIZES, **CASES[case][0], **changes})


def randomised(config, rng):
    return tree.map(lambda leaf: 0.5 * rng.standard_normal(leaf.shape), vit.init(config, rng, np.float64))


def timm_model(case, params, **changes):
    """Build timm's model and give it our parameters, names and shapes checked strictly."""
    model = timm_vit.VisionTransformer(**{**THEIR_SIZES, **CASES[case][1], **changes}).double()
    state = {key: torch.tensor(leaf) for key, leaf in tree.flatten(params).items()}
    model.load_state_dict(state, strict=True)
    return model


def problem(case, seed=0, **changes):
    rng = np.random.default_rng(seed)
    config = config_of(case, **changes)
    return config, randomised(config, rng), rng.standard_normal((B, config.in_chans, *config.image)), rng


def same(ours, theirs, tolerance, name):
    """Compare, relative to the largest entry of the reference."""
    theirs = theirs.detach().numpy()
    assert ours.shape == theirs.shape, name
    scale = np.abs(theirs).max()
    assert scale > 0, f"{name}: a reference of zeros proves nothing"
    np.testing.assert_allclose(ours / scale, theirs / scale, rtol=0, atol=tolerance, err_msg=name)


@pytest.mark.parametrize("case", CASES)
def test_logits_and_all_gradients(case):
    config, params, images, rng = problem(case)
    model = timm_model(case, params)
    images_theirs = torch.tensor(images, requires_grad=True)
    theirs = model(images_theirs)
    logits, cache = vit.forward(params, images, config)
    same(logits, theirs, VALUE, "logits")
    np.testing.assert_array_equal(vit.predict(params, images, config), logits)

    dlogits = rng.standard_normal(logits.shape)
    keys, leaves = zip(*model.named_parameters(), strict=True)
    references = torch.autograd.grad(theirs, [images_theirs, *leaves], torch.tensor(dlogits))
    dimages, grads = vit.backward(dlogits, cache, input_grad=True)
    flat = tree.flatten(grads)
    assert flat.keys() == tree.flatten(params).keys() == set(keys)
    for name, ours, reference in zip(("dimages", *keys), (dimages, *map(flat.get, keys)), references, strict=True):
        if name.endswith("k_norm.bias"):  # added to every key alike it moves no weight: zero, up to rounding
            assert max(np.abs(ours).max(), reference.abs().max()) < GRADIENT
        else:
            same(ours, reference, GRADIENT, name)


@pytest.mark.parametrize("case", CASES)
def test_recorded_intermediates_are_the_outputs_of_timm_s_modules(case):
    config, params, images, _ = problem(case, seed=1)
    record, outputs = {}, {}
    vit.forward(params, images, config, record=record)
    model = timm_model(case, params)
    for name, module in model.named_modules():
        module.register_forward_hook(lambda module, args, output, name=name: outputs.__setitem__(name, output))
    model(torch.tensor(images))
    outputs["logits"] = outputs["head"]
    record.pop("pre_logits")  # torchvision's layer, which timm lacks
    if config.pos_embed == "none":
        record.pop("pos_drop")  # timm returns before it
    assert {"patch_embed", "norm", "logits"} < record.keys() <= outputs.keys()
    for i in range(config.depth):
        parts = ["", ".norm1", ".attn", ".attn.qkv", ".attn.proj", ".norm2", ".mlp", ".mlp.fc1", ".mlp.act", ".mlp.fc2"]
        assert {f"blocks.{i}{part}" for part in parts} <= record.keys()
    for name, value in record.items():
        same(value, outputs[name], VALUE, name)


@pytest.mark.parametrize("case", CASES)
def test_float32_logits_are_near_those_of_float64(case):
    config, params, images, _ = problem(case, seed=2)
    with torch.no_grad():
        theirs = timm_model(case, params)(torch.tensor(images))
    single = tree.map(lambda leaf: leaf.astype(np.float32), params)
    logits = vit.predict(single, images.astype(np.float32), config)
    assert logits.dtype == np.float32
    same(logits, theirs, SINGLE, "logits")


class Replay:
    """A generator whose draws are timm's decisions: 1 where it kept an entry, 0 where it did not."""

    def __init__(self):
        self.kept = []

    def listen(self, module, args, output):
        kept = (output != 0).numpy(force=True)
        self.kept.append(kept if isinstance(module, torch.nn.Dropout) else kept.reshape(len(kept), -1).any(axis=1))

    def random(self, shape, dtype):
        kept = self.kept.pop(0)
        assert kept.shape == (shape if isinstance(shape, tuple) else (shape,))
        return kept.astype(dtype)


def test_training_mode_with_timm_s_own_dropout_masks():
    """Every dropout stands where timm's does, is scaled as there, and drop path rises with depth in the same way."""
    # halves and quarters, since timm computes the rates of drop path in float32
    rates = {
        "drop_rate": 0.1, "pos_drop_rate": 0.2, "proj_drop_rate": 0.3, "attn_drop_rate": 0.4, "drop_path_rate": 0.5,
        "depth": 3,
    }  # fmt: skip
    torch.manual_seed(0)
    config, params, images, rng = problem("token", seed=3, **rates)
    model, replay = timm_model("token", params, **rates).train(), Replay()
    for part in model.modules():
        if isinstance(part, timm_vit.Attention):
            part.fused_attn = False  # the fused kernel drops weights out of a hook's sight
        if isinstance(part, torch.nn.Dropout | timm_vit.DropPath) and (getattr(part, "p", 1) > 0):
            part.register_forward_hook(replay.listen)
    theirs = model(torch.tensor(images))
    logits, cache = vit.forward(params, images, config, replay, {})  # a record: every token drops
    assert not replay.kept
    same(logits, theirs, VALUE, "logits")
    dlogits = rng.standard_normal(logits.shape)
    keys, leaves = zip(*model.named_parameters(), strict=True)
    flat = tree.flatten(vit.backward(dlogits, cache)[1])
    for key, reference in zip(keys, torch.autograd.grad(theirs, leaves, torch.tensor(dlogits)), strict=True):
        same(flat[key], reference, GRADIENT, key)


@pytest.mark.parametrize("fault", ["eps", "tanh gelu", "interleaved qkv"])
def test_the_comparison_sees(fault):
    """Three mistakes of ports, each with the right shapes: the comparison above has to fail."""
    config, params, images, _ = problem("token", seed=4)
    theirs = timm_model("token", params)(torch.tensor(images))
    same(vit.predict(params, images, config), theirs, VALUE, "logits")
    if fault == "eps":
        config = config_of("token", norm_eps=1e-5)
    elif fault == "tanh gelu":
        config = config_of("token", act="gelu_tanh")
    else:
        for block in params["blocks"]:  # rows (3, H, d) stored as (H, 3, d), as Megatron does
            for name, leaf in block["attn"]["qkv"].items():
                split = leaf.reshape(3, config.num_heads, D // config.num_heads, -1)
                block["attn"]["qkv"][name] = split.swapaxes(0, 1).reshape(leaf.shape)
    with pytest.raises(AssertionError, match="logits"):
        same(vit.predict(params, images, config), theirs, VALUE, "logits")


class Zeros:
    """A generator that draws nothing but zeros: for shapes it is enough, and quick."""

    def standard_normal(self, shape):
        return np.zeros(shape)

    def uniform(self, low, high, shape):
        return np.zeros(shape)


@pytest.mark.parametrize(
    ("name", "count"),
    [("vit_tiny_patch16_224", 5_717_416), ("vit_small_patch32_224", 22_878_952), ("vit_base_patch16_224", 86_567_656)],
)
def test_named_variants_have_timm_s_shapes(name, count):
    with torch.device("meta"):  # shapes only, no memory
        state = timm.create_model(name, pretrained=False).state_dict()
    params = vit.init(vit_config(name), Zeros())
    assert {key: leaf.shape for key, leaf in tree.flatten(params).items()} == {
        key: tuple(leaf.shape) for key, leaf in state.items()
    }
    assert tree.count(params) == count
