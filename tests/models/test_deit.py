"""DeiT: two tokens, two heads, their gradients, and what they do not go with."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest

from numpy_vit import tree
from numpy_vit.checks import gradcheck
from numpy_vit.checks.model_examples import DEIT_CHOICES, deit_example, vit_example
from numpy_vit.layers import readout_block
from numpy_vit.models import deit, vit


def example(**choices):
    rng = np.random.default_rng(1)
    config = deit_example(choices)
    params = tree.map(lambda leaf: leaf + 0.3 * rng.standard_normal(leaf.shape), deit.init(config, rng, np.float64))
    return config, params, rng.standard_normal((3, config.in_chans, *config.image))


@pytest.mark.parametrize("what", DEIT_CHOICES)
def test_gradients(what):
    config, params, images = example(**{k: v for k, v in DEIT_CHOICES[what].items() if "rate" not in k})

    def backward(dlogits, cache):
        return deit.backward(dlogits, cache, input_grad=True)

    assert gradcheck(lambda p, x: deit.forward(p, x, config), backward, params, images).ok


def test_it_is_a_vision_transformer_with_a_register_that_a_second_head_reads():
    config, params, images = example()
    (labels, teacher), _ = deit.forward(params, images, config)
    as_vit = {key: leaf for key, leaf in params.items() if key not in ("dist_token", "head_dist")}
    as_vit["reg_token"] = params["dist_token"]
    register = vit.Config(**{**asdict(config), "reg_tokens": 1})
    np.testing.assert_allclose(labels, vit.forward(as_vit, images, register)[0], rtol=1e-12)
    record = {}
    vit.forward(as_vit, images, register, record=record)
    head = params["head_dist"]
    np.testing.assert_allclose(teacher, record["norm"][:, 1] @ head["weight"].T + head["bias"], rtol=1e-12)
    np.testing.assert_array_equal(deit.predict(params, images, config), (labels + teacher) / 2)


def test_each_head_s_loss_reaches_its_own_head_and_both_tokens():
    config, params, images = example()
    (labels, teacher), cache = deit.forward(params, images, config)
    _, grads = deit.backward((np.ones_like(labels), np.zeros_like(teacher)), cache)
    assert grads["head"]["weight"].any()
    assert not grads["head_dist"]["weight"].any()
    assert grads["dist_token"].any()  # through attention
    dimages, _ = deit.backward((labels, teacher), cache)
    assert dimages is None


@pytest.mark.parametrize("what", DEIT_CHOICES)
def test_the_two_tokens_that_are_read_suffice(what):
    """A record wants every token of the last block; without one it computes two, and nothing else differs."""
    config, params, images = example(**{k: v for k, v in DEIT_CHOICES[what].items() if "rate" not in k})
    assert [spec.read for spec in config.blocks] == [2, 2]
    assert (readout_block in config.block_forms(every_token=False)) == (config.block == "pre_norm")
    record = {}
    whole, whole_cache = deit.forward(params, images, config, record=record)
    logits, cache = deit.forward(params, images, config)
    assert record["blocks.1"].shape[1] == 11
    (shape, *_) = cache[-1]  # of the tokens that reach the heads
    assert shape == (3, 2 if config.block == "pre_norm" else 11, 8)
    dlogits = tuple(np.random.default_rng(2).standard_normal(logits[0].shape) for _ in range(2))
    dimages, grads = deit.backward(dlogits, cache, input_grad=True)
    whole_dimages, whole_grads = deit.backward(dlogits, whole_cache, input_grad=True)
    expected = tree.flatten([whole, whole_dimages, whole_grads])
    found = tree.flatten([logits, dimages, grads])
    assert found.keys() == expected.keys()
    for key, leaf in expected.items():
        np.testing.assert_allclose(found[key], leaf, rtol=1e-12, atol=1e-12 * np.abs(leaf).max(), err_msg=key)
    np.testing.assert_allclose(deit.predict(params, images, config), (whole[0] + whole[1]) / 2, rtol=1e-12)


@pytest.mark.parametrize(
    ("field", "value"), [("global_pool", "avg"), ("reg_tokens", 2), ("pre_logits", 5), ("fc_norm", True)]
)
def test_what_does_not_go_with_two_tokens_is_refused(field, value):
    with pytest.raises(ValueError, match=field):
        deit.Config(**{**asdict(vit_example({})), field: value})


@pytest.mark.framework
def test_logits_and_gradients_are_timm_s():
    torch = pytest.importorskip("torch")
    timm_deit = pytest.importorskip("timm.models.deit")
    config, params, images = example()
    model = timm_deit.VisionTransformerDistilled(
        img_size=config.image, patch_size=config.patch, in_chans=2, num_classes=3, embed_dim=8, depth=2, num_heads=2,
        mlp_ratio=10 / 8,
    ).double()  # fmt: skip
    model.load_state_dict({key: torch.tensor(leaf) for key, leaf in tree.flatten(params).items()}, strict=True)
    model.set_distilled_training(True)
    theirs = model.train()(torch.tensor(images))
    ours, cache = deit.forward(params, images, config)
    upstream = tuple(np.random.default_rng(2).standard_normal(logits.shape) for logits in ours)
    keys, leaves = zip(*model.named_parameters(), strict=True)
    found = torch.autograd.grad(theirs, leaves, [torch.tensor(u) for u in upstream])
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b.detach().numpy(), rtol=1e-11)
    grads = tree.flatten(deit.backward(upstream, cache)[1])
    for key, reference in zip(keys, found, strict=True):
        np.testing.assert_allclose(grads[key], reference.numpy(), rtol=1e-9, atol=1e-11, err_msg=key)
    averaged = model.eval()(torch.tensor(images)).detach().numpy()
    np.testing.assert_allclose(deit.predict(params, images, config), averaged, rtol=1e-11)
