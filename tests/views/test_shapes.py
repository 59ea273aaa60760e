"""Shapes and costs by formula are those of real models, and the published ones."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from numpy_vit import tree
from numpy_vit.models import deit, vit, vit_config
from numpy_vit.views import costs, memory
from numpy_vit.views.shapes import intermediate_shapes, parameter_shapes

BASE: dict[str, Any] = {
    "image_size": (12, 20), "patch_size": (4, 5), "in_chans": 3, "num_classes": 7, "embed_dim": 24, "depth": 3,
    "num_heads": 3, "hidden_dim": 40,
}  # fmt: skip
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "no biases, norms everywhere": {"qkv_bias": False, "patch_bias": False, "patch_norm": True, "norm_pre": True},
    "q and k norms, layer scale": {"qk_norm": True, "init_values": 0.1},
    "registers without rows": {"reg_tokens": 2, "no_embed_class": True},
    "mean": {"class_token": False, "global_pool": "avg"},
    "mean after the norm": {"global_pool": "avg", "fc_norm": False},
    "map": {"global_pool": "map", "class_token": False},
    "map with registers, no norm": {"global_pool": "map", "reg_tokens": 1, "final_norm": False},
    "map, norm after it": {"global_pool": "map", "fc_norm": True},
    "swiglu": {"swiglu": True},
    "post-norm": {"block": "post_norm", "final_norm": False},
    "post-norm, layer scale": {"block": "post_norm", "init_values": 0.1},
    "pre-logits": {"pre_logits": 11},
    "pre-logits without a head": {"pre_logits": 11, "num_classes": 0},
    "features": {"num_classes": 0},
    "norm after the class token": {"fc_norm": True},
    "computed positions": {"pos_embed": "sincos_2d_mae"},
    "no positions": {"pos_embed": "none"},
    "no blocks": {"depth": 0},
    "dropout": {
        "drop_rate": 0.1, "pos_drop_rate": 0.1, "proj_drop_rate": 0.1, "attn_drop_rate": 0.1, "drop_path_rate": 0.1,
    },
    "dropout, pre-logits": {"drop_rate": 0.1, "pre_logits": 11},
    "heads of another width": {"head_dim": 5, "qk_norm": True, "num_heads": 7},
    "norm of the pixels": {"patch_pre_norm": True, "patch_norm": True},
    "class token and mean": {"global_pool": "token_avg"},
    "class token and mean, dropout": {"global_pool": "token_avg", "drop_rate": 0.1, "pre_logits": 11},
    "mean with the class token": {"global_pool": "avg", "pool_include_prefix": True},
    "relu": {"act": "relu"},
    "relu, dropout": {"act": "relu", "proj_drop_rate": 0.1},
    "deit": {},
    "deit, dropout": {"drop_rate": 0.1, "proj_drop_rate": 0.1},
    "deit, features": {"num_classes": 0, "no_embed_class": True},
    "dropout, swiglu": {"proj_drop_rate": 0.1, "drop_rate": 0.1, "swiglu": True, "global_pool": "avg"},
}  # fmt: skip


def config_of(name: str) -> vit.Config:
    return model_of(name).Config(**{**BASE, **OPTIONS[name]})


def model_of(name: str) -> Any:
    return deit if name.startswith("deit") else vit


@pytest.mark.parametrize("name", OPTIONS)
def test_parameters_are_those_of_init(name: str) -> None:
    config = config_of(name)
    made = tree.flatten(model_of(name).init(config, np.random.default_rng(0)))
    assert list(parameter_shapes(config).items()) == [(key, leaf.shape) for key, leaf in made.items()]
    assert "other" not in costs.parameters(parameter_shapes(config))


@pytest.mark.parametrize("name", OPTIONS)
def test_intermediates_are_what_forward_records(name: str) -> None:
    config, record = config_of(name), dict[str, Any]()
    model = model_of(name)
    model.forward(model.init(config, np.random.default_rng(0)), _images(config), config, record=record)
    assert list(intermediate_shapes(config).items()) == [(key, value.shape) for key, value in record.items()]


@pytest.mark.parametrize("name", OPTIONS)
def test_training_memory_is_what_the_caches_hold(name: str) -> None:
    config = config_of(name)
    model = model_of(name)
    params, images = model.init(config, np.random.default_rng(0)), _images(config)
    for batch in (1, 3):
        rng = np.random.default_rng(0)
        _, cache = model.forward(params, np.repeat(images, batch, axis=0), config, rng)
        own = {id(buffer) for leaf in tree.flatten(params).values() for buffer in [_buffer(leaf)]}
        held = {id(b): b.nbytes for b in map(_buffer, _arrays(cache)) if id(b) not in own}
        assert sum(held.values()) == pytest.approx(batch * sum(memory.training(config).values()), abs=4 * batch)


def _images(config: vit.Config) -> Any:
    return np.random.default_rng(1).normal(size=(1, config.in_chans, *config.image)).astype(np.float32)


def _buffer(array: Any) -> Any:
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _arrays(node: Any) -> Iterator[Any]:
    if isinstance(node, np.ndarray):
        yield node
    elif isinstance(node, dict):
        for child in node.values():
            yield from _arrays(child)
    elif isinstance(node, (list, tuple)):
        for child in node:
            yield from _arrays(child)


@pytest.mark.parametrize(
    "changes", [{}, {"swiglu": True}, {"image_size": 128, "embed_dim": 48}], ids=["mlp", "swiglu", "long"]
)
def test_inference_memory_is_near_the_measured_peak(changes: dict[str, Any]) -> None:
    fields = {"image_size": 64, "patch_size": 4, "embed_dim": 96, "depth": 2, "num_heads": 3, "num_classes": 10}
    config = vit.Config(**{**fields, **changes})
    params, images = vit.init(config, np.random.default_rng(0)), _images(config)
    tracemalloc.start()
    try:
        vit.predict(params, images, config)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert memory.inference(config) == pytest.approx(peak, rel=0.1)


@pytest.mark.parametrize(
    ("name", "parameters", "gmacs"),
    [  # torchvision's table of its weights: num_params and _ops
        ("vit_base_patch16_224", 86_567_656, 17.564),
        ("vit_base_patch32_224", 88_224_232, 4.409),
        ("vit_large_patch16_224", 304_326_632, 61.555),
        ("vit_large_patch32_224", 306_535_400, 15.378),
        ("vit_huge_patch14_224", 632_045_800, 167.295),
        ("vit_huge_patch14_518", 633_470_440, 1016.717),
    ],
)
def test_published_parameters_and_operations(name: str, parameters: int, gmacs: float) -> None:
    config = vit_config(name)
    assert sum(costs.parameters(parameter_shapes(config)).values()) == parameters
    assert sum(costs.multiply_adds(config).values()) / 1e9 == pytest.approx(gmacs, abs=6e-4)


@pytest.mark.framework
@pytest.mark.parametrize("changes", [{}, {"global_pool": "map", "class_token": False}], ids=["token", "map"])
def test_operations_are_what_torch_counts(changes: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    timm = pytest.importorskip("timm")
    from torch.utils.flop_counter import FlopCounterMode

    sizes = {"img_size": 32, "patch_size": 8, "embed_dim": 24, "depth": 3, "num_heads": 3, "num_classes": 7}
    model = timm.models.vision_transformer.VisionTransformer(**sizes, **changes).eval().requires_grad_(False)
    config = vit.Config(32, 8, 3, 7, 24, 3, 3, **changes)
    for module in model.modules():
        if hasattr(module, "fused_attn"):
            module.fused_attn = False  # the fused kernel is not counted on a CPU
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(torch.zeros(1, 3, 32, 32))
    assert counter.get_total_flops() == 2 * sum(costs.multiply_adds(config).values())
