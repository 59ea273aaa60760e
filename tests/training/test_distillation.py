"""Distillation: one head or two, soft or hard, the same in shards, and what torch makes of the equations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from numpy_vit import tree
from numpy_vit.checks import gradcheck
from numpy_vit.checks.examples import vit_example
from numpy_vit.checks.model_examples import deit_example
from numpy_vit.layers import cross_entropy, kl_divergence
from numpy_vit.models import deit, vit
from numpy_vit.training.distillation import KINDS, Distillation
from numpy_vit.training.objectives import CrossEntropy
from numpy_vit.training.step import objective_gradients

RATES = {"drop_rate": 0.2, "attn_drop_rate": 0.3, "drop_path_rate": 0.4}
MODELS = [pytest.param(vit, vit_example(RATES), id="vit"), pytest.param(deit, deit_example(RATES), id="deit")]
B, K = 10, 3
WHOLE = slice(0, B)


def targets(soft: bool) -> Any:
    """Class indices with label smoothing, or what Mixup makes of them."""
    rng = np.random.default_rng(1)
    return CrossEntropy(rng.dirichlet(np.ones(K), B)) if soft else CrossEntropy(rng.integers(0, K, B), 0.1)


def outputs(heads: int) -> Any:
    made = tuple(np.random.default_rng(2).standard_normal((heads, B, K)))
    return made if heads == 2 else made[0]


def teacher_logits(dtype: Any = np.float32) -> Any:
    return (2 * np.random.default_rng(3).standard_normal((B, K))).astype(dtype)


def batch(model: Any, config: Any, dtype: Any = np.float64) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    params = tree.map(lambda leaf: leaf + 0.3 * rng.standard_normal(leaf.shape), model.init(config, rng, np.float64))
    images = rng.standard_normal((B, 2, 6, 12))
    return tree.map(lambda leaf: leaf.astype(dtype), params), images.astype(dtype)


def largest_difference(a: Any, b: Any) -> float:
    flat = tree.flatten(b)
    assert tree.flatten(a).keys() == flat.keys()
    return max(float(np.abs(leaf - flat[key]).max()) for key, leaf in tree.flatten(a).items())


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_both_parts_are_those_of_the_layers(kind: str, heads: int) -> None:
    labels, teacher, output = targets(soft=False), teacher_logits(np.float64), outputs(heads)
    z, z_taught = output if heads == 2 else (output, output)
    objective = Distillation(labels, teacher, kind, 0.3, 2.5)
    loss, _ = objective.forward(output, WHOLE)
    own, _ = cross_entropy.forward(z, labels.targets, 0.1)
    if kind == "soft":
        taught, _ = kl_divergence.forward(z_taught, teacher, 2.5)
    else:
        taught, _ = cross_entropy.forward(z_taught, teacher.argmax(axis=1))  # without label smoothing
    assert objective.denominator == B
    assert loss / objective.denominator == pytest.approx(0.7 * own + 0.3 * taught, rel=1e-14)


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_gradients(kind: str, soft: bool, heads: int) -> None:
    objective = Distillation(targets(soft), teacher_logits(), kind, 0.3, 2.5)
    assert gradcheck(lambda x: objective.forward(x, WHOLE), objective.backward, None, outputs(heads)).ok

    def labels_only(dloss: Any, cache: Any) -> Any:
        two_heads, c_labels, _ = cache
        dz = objective.labels.backward(0.7 * dloss, c_labels)
        return (dz, 0 * dz) if two_heads else dz

    assert not gradcheck(lambda x: objective.forward(x, WHOLE), labels_only, None, outputs(heads)).ok


@pytest.mark.parametrize("kind", KINDS)
def test_two_heads_that_agree_share_the_gradient_of_one(kind: str) -> None:
    objective = Distillation(targets(soft=False), teacher_logits(), kind, 0.4, 3.0)
    z = outputs(1)
    loss, cache = objective.forward(z, WHOLE)
    both, c_both = objective.forward((z, z.copy()), WHOLE)
    assert both == loss
    dz, dz_taught = objective.backward(1.0, c_both)
    np.testing.assert_array_equal(dz + dz_taught, objective.backward(1.0, cache))
    assert dz.any() and dz_taught.any() and not np.allclose(dz, dz_taught)


@pytest.mark.parametrize("kind", KINDS)
def test_the_ends_of_alpha_are_one_part_alone(kind: str) -> None:
    labels, teacher, z = targets(soft=True), teacher_logits(), outputs(1)
    nobody, whole = Distillation(labels, teacher, kind, 0.0), Distillation(labels, teacher, kind, 1.0)
    for objective, other in ((nobody, Distillation(labels, -teacher, kind, 0.0)), (nobody, labels)):
        (loss, cache), (expected, c_expected) = objective.forward(z, WHOLE), other.forward(z, WHOLE)
        assert loss == expected
        np.testing.assert_array_equal(objective.backward(1.0, cache), other.backward(1.0, c_expected))
    loss, cache = whole.forward(z, WHOLE)
    expected, c_expected = Distillation(targets(soft=False), teacher, kind, 1.0).forward(z, WHOLE)
    assert loss == expected
    np.testing.assert_array_equal(whole.backward(1.0, cache), whole.backward(1.0, c_expected))
    assert loss != Distillation(labels, -teacher, kind, 1.0).forward(z, WHOLE)[0]


def test_a_part_of_the_batch_has_its_own_rows() -> None:
    objective, z = Distillation(targets(soft=False), teacher_logits()), outputs(1)
    parts = [slice(0, 3), slice(3, 4), slice(4, B)]
    found = [objective.forward(z[part], part) for part in parts]
    loss, cache = objective.forward(z, WHOLE)
    assert sum(value for value, _ in found) == pytest.approx(float(loss), rel=1e-14)
    dlogits = np.concatenate([objective.backward(0.5, c) for _, c in found])
    np.testing.assert_allclose(dlogits, objective.backward(0.5, cache), rtol=1e-13, atol=1e-16)


def test_logits_are_the_output_or_the_mean_of_both_heads() -> None:
    objective = Distillation(targets(soft=False), teacher_logits())
    one, two = outputs(1), outputs(2)
    assert objective.logits(one) is one
    np.testing.assert_array_equal(objective.logits(two), (two[0] + two[1]) / 2)


@pytest.mark.parametrize("shard", [1, 3, 4])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("model", "config"), MODELS)
def test_accumulated_shards_are_the_big_batch(model: Any, config: Any, kind: str, shard: int) -> None:
    params, images = batch(model, config)
    objective = Distillation(targets(soft=True), teacher_logits(), kind, 0.3, 2.5)
    output, cache = model.forward(params, images, config)
    loss, c_loss = objective.forward(output, WHOLE)
    _, whole = model.backward(objective.backward(1 / B, c_loss), cache)
    found = objective_gradients(model, params, config, images, objective, shard=shard, workers=2)
    assert found.loss == pytest.approx(float(loss) / B, rel=1e-13)
    assert largest_difference(found.grads, whole) < 1e-13
    np.testing.assert_allclose(found.logits, model.predict(params, images, config), rtol=0, atol=1e-12)
    other = Distillation(objective.labels, -objective.teacher, kind, 0.3, 2.5)
    assert largest_difference(objective_gradients(model, params, config, images, other).grads, whole) > 1e-3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("model", "config"), MODELS)
def test_the_bits_do_not_depend_on_the_number_of_workers(model: Any, config: Any, kind: str) -> None:
    params, images = batch(model, config, np.float32)
    objective = Distillation(targets(soft=False), teacher_logits(), kind, 0.3, 2.5)
    found = [
        objective_gradients(model, params, config, images, objective, seed=(5, 7), shard=2, workers=workers)
        for workers in (1, 2, 4)
    ]
    assert {leaf.dtype for leaf in tree.flatten(found[0].grads).values()} == {np.dtype(np.float32)}
    for other in found[1:]:
        assert other.loss == found[0].loss
        assert other.logits.tobytes() == found[0].logits.tobytes()
        assert largest_difference(other.grads, found[0].grads) == 0


def test_what_does_not_fit_is_named() -> None:
    labels, teacher = targets(soft=False), teacher_logits()
    with pytest.raises(ValueError, match="no sample weights"):
        Distillation(CrossEntropy(labels.targets, weights=np.ones(B)), teacher)
    for wrong in (teacher[:9], teacher[0], teacher[None]):
        with pytest.raises(ValueError, match=r"have to be \(B, K\), one row for each of 10 targets"):
            Distillation(labels, wrong)
    with pytest.raises(ValueError, match="soft, hard, not 'none'"):
        Distillation(labels, teacher, "none")
    for alpha in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match="alpha lies in"):
            Distillation(labels, teacher, alpha=alpha)
    for temperature in (0.0, -1.0, float("inf")):
        with pytest.raises(ValueError, match="temperature has to be positive"):
            Distillation(labels, teacher, temperature=temperature)
    with pytest.raises(ValueError, match=r"\(10, 4\) have to have the student's shape \(10, 3\)"):
        Distillation(labels, np.zeros((B, 4))).forward(outputs(1), WHOLE)


@pytest.mark.framework
@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_loss_and_gradients_are_the_equations_in_torch(kind: str, soft: bool, heads: int) -> None:
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional
    labels, teacher, output = targets(soft), teacher_logits(np.float64), outputs(heads)
    leaves = [torch.tensor(z, requires_grad=True) for z in (output if heads == 2 else [output])]
    z, z_taught = leaves[0], leaves[-1]
    own = functional.cross_entropy(z, torch.tensor(labels.targets), label_smoothing=labels.label_smoothing)
    taught = torch.tensor(teacher)
    if kind == "soft":
        log_p, log_q = (functional.log_softmax(x / 2.5, dim=1) for x in (z_taught, taught))
        part = 2.5**2 * functional.kl_div(log_p, log_q, reduction="batchmean", log_target=True)
    else:
        part = functional.cross_entropy(z_taught, taught.argmax(dim=1))
    loss = 0.7 * own + 0.3 * part
    expected = torch.autograd.grad(loss, leaves)
    objective = Distillation(labels, teacher, kind, 0.3, 2.5)
    ours, cache = objective.forward(output, WHOLE)
    dlogits = objective.backward(1 / objective.denominator, cache)
    assert ours / objective.denominator == pytest.approx(loss.item(), rel=1e-12)
    for found, reference in zip(dlogits if heads == 2 else [dlogits], expected, strict=True):
        assert reference.abs().max() > 1e-3
        np.testing.assert_allclose(found, reference.numpy(), rtol=1e-12, atol=1e-14)


@pytest.mark.framework
@pytest.mark.parametrize("kind", KINDS)
def test_a_distilled_model_learns_what_timm_s_does(kind: str) -> None:
    """Every parameter's gradient of DeiT's loss, in shards, against autograd through timm's model."""
    torch = pytest.importorskip("torch")
    timm_deit = pytest.importorskip("timm.models.deit")
    functional = torch.nn.functional
    config = deit_example({})
    params, images = batch(deit, config)
    labels, teacher = targets(soft=False), teacher_logits(np.float64)
    model = timm_deit.VisionTransformerDistilled(
        img_size=config.image, patch_size=config.patch, in_chans=2, num_classes=3, embed_dim=8, depth=2, num_heads=2,
        mlp_ratio=10 / 8,
    ).double()  # fmt: skip
    model.load_state_dict({key: torch.tensor(leaf) for key, leaf in tree.flatten(params).items()}, strict=True)
    model.set_distilled_training(True)
    z, z_taught = model.train()(torch.tensor(images))
    loss = 0.5 * functional.cross_entropy(z, torch.tensor(labels.targets), label_smoothing=0.1)
    if kind == "soft":
        log_p, log_q = (functional.log_softmax(x / 3, dim=1) for x in (z_taught, torch.tensor(teacher)))
        loss = loss + 0.5 * 9 * functional.kl_div(log_p, log_q, reduction="batchmean", log_target=True)
    else:
        loss = loss + 0.5 * functional.cross_entropy(z_taught, torch.tensor(teacher.argmax(axis=1)))
    keys, leaves = zip(*model.named_parameters(), strict=True)
    expected = torch.autograd.grad(loss, leaves)
    found = objective_gradients(deit, params, config, images, Distillation(labels, teacher, kind), shard=4)
    assert found.loss == pytest.approx(loss.item(), rel=1e-12)
    grads = tree.flatten(found.grads)
    for key, reference in zip(keys, expected, strict=True):
        np.testing.assert_allclose(grads[key], reference.numpy(), rtol=1e-9, atol=1e-12, err_msg=key)
