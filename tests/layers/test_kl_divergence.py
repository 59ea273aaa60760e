"""The divergence of two softened softmaxes against numbers worked out one by one, and against torch."""

from __future__ import annotations

import math

import numpy as np
import pytest

from numpy_vit.checks import gradcheck
from numpy_vit.layers import cross_entropy, kl_divergence, softmax


def loss_and_gradient(logits, teacher, *args, **choices):
    loss, cache = kl_divergence.forward(np.asarray(logits, np.float64), np.asarray(teacher), *args, **choices)
    return loss, kl_divergence.backward(np.ones_like(loss), cache)


def reference(row, teacher, T):
    """Return T² Σ q log(q/p) and T (p - q) of one row, with sums that do not round."""
    logs = []
    for logits in (row, teacher):
        shift = max(logits)
        total = math.log(math.fsum(math.exp((z - shift) / T) for z in logits))
        logs.append([(z - shift) / T - total for z in logits])
    log_p, log_q = logs
    loss = T * T * math.fsum(math.exp(b) * (b - a) for a, b in zip(log_p, log_q, strict=True))
    return loss, [T * (math.exp(a) - math.exp(b)) for a, b in zip(log_p, log_q, strict=True)]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_every_reduction_against_loops(reduction, temperature):
    logits, teacher = 3 * np.random.default_rng(0).standard_normal((2, 4, 6))
    loss, dlogits = loss_and_gradient(logits, teacher, temperature, reduction)
    rows = [reference(z.tolist(), t.tolist(), temperature) for z, t in zip(logits, teacher, strict=True)]
    factor = 1 / 4 if reduction == "mean" else 1
    losses = [factor * value for value, _ in rows]
    expected = losses if reduction == "none" else math.fsum(losses)
    np.testing.assert_allclose(loss, expected, rtol=1e-13)
    np.testing.assert_allclose(dlogits, [[factor * d for d in row] for _, row in rows], rtol=1e-12, atol=1e-15)


def test_two_classes_by_hand():
    """q = (3/4, 1/4) and p = (1/2, 1/2): the divergence is log 2 less the entropy of q."""
    loss, dlogits = loss_and_gradient([[0.0, 0.0]], [[2 * math.log(3), 0.0]], 2.0)
    assert loss == pytest.approx(4 * (0.75 * math.log(1.5) + 0.25 * math.log(0.5)), rel=1e-14)
    np.testing.assert_allclose(dlogits, [[2 * (0.5 - 0.75), 2 * (0.5 - 0.25)]], rtol=1e-14)


def test_who_agrees_with_the_teacher_loses_nothing():
    logits = 4 * np.random.default_rng(1).standard_normal((3, 5))
    shifted = logits + np.array([[1.0], [-300.0], [7.0]])  # a constant a row changes no softmax
    loss, dlogits = loss_and_gradient(logits, shifted, 2.0, "none")
    np.testing.assert_allclose(loss, 0, atol=1e-13)
    np.testing.assert_allclose(dlogits, 0, atol=1e-13)
    assert (loss_and_gradient(logits, logits[:, ::-1], 2.0, "none")[0] > 0.1).all()


def test_it_is_the_cross_entropy_with_the_teacher_s_distribution_less_its_entropy():
    logits, teacher = np.random.default_rng(2).standard_normal((2, 4, 6))
    q, _ = softmax.forward(teacher)
    loss, dlogits = loss_and_gradient(logits, teacher)
    cost, cache = cross_entropy.forward(logits, q)
    entropy = -(q * np.log(q)).sum(axis=1).mean()
    assert loss == pytest.approx(cost - entropy, rel=1e-13)
    np.testing.assert_allclose(dlogits, cross_entropy.backward(1.0, cache), rtol=1e-12, atol=1e-16)


def test_at_a_high_temperature_it_matches_centred_logits():
    """T -> ∞: the gradient becomes (z - mean z - (v - mean v))/K, whatever T is (Hinton et al. 2015, equation 4)."""
    logits, teacher = np.random.default_rng(3).standard_normal((2, 4, 6))
    gap = (logits - logits.mean(axis=1, keepdims=True)) - (teacher - teacher.mean(axis=1, keepdims=True))
    for temperature in (1e5, 1e6):
        _, dlogits = loss_and_gradient(logits, teacher, temperature, "sum")
        np.testing.assert_allclose(dlogits, gap / 6, rtol=1e-3)
        assert kl_divergence.forward(logits, teacher, temperature, "sum")[0] == pytest.approx(
            (gap * gap).sum() / 12, rel=1e-3
        )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_large_logits_are_exact(dtype):
    logits = np.array([[1000.0, -1000], [1000, -1000], [-1000, 1000]], dtype)
    teacher = np.array([[1000.0, -1000], [-1000, 1000], [0, 0]], dtype)
    loss, cache = kl_divergence.forward(logits, teacher, reduction="none")
    dlogits = kl_divergence.backward(np.ones(3, dtype), cache)
    assert loss.dtype == dlogits.dtype == dtype
    assert loss.tolist() == [0.0, 2000.0, pytest.approx(1000 - math.log(2), rel=1e-6)]
    assert dlogits.tolist() == [[0.0, 0.0], [1.0, -1.0], [-0.5, 0.5]]


def test_a_class_that_both_rule_out_costs_nothing():
    loss, dlogits = loss_and_gradient([[-np.inf, 0.0, 0.0]], [[-np.inf, math.log(3), 0.0]])
    assert loss == pytest.approx(0.75 * math.log(1.5) + 0.25 * math.log(0.5), rel=1e-14)
    np.testing.assert_allclose(dlogits, [[0.0, -0.25, 0.25]], rtol=1e-14)


@pytest.mark.parametrize("temperature", [0.7, 1.0, 4.0])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_gradients(reduction, temperature):
    logits, teacher = 2 * np.random.default_rng(4).standard_normal((2, 4, 5))

    def forward(x):
        return kl_divergence.forward(x, teacher, temperature, reduction)

    assert gradcheck(forward, kl_divergence.backward, None, logits).ok

    def without_temperature(dloss, cache):
        p, q, _, factor = cache
        return kl_divergence.backward(dloss, (p, q, 1.0, factor))

    assert gradcheck(forward, without_temperature, None, logits).ok == (temperature == 1)


def test_the_upstream_gradient_scales_and_inputs_stay():
    logits, teacher = np.random.default_rng(5).standard_normal((2, 4, 3)).astype(np.float32)
    before = logits.copy(), teacher.copy()
    _, cache = kl_divergence.forward(logits, teacher.astype(np.float64), 2.0, "none")
    each = kl_divergence.backward(np.arange(4.0), cache)
    assert each.dtype == np.float32
    np.testing.assert_array_equal(each, np.arange(4, dtype=np.float32)[:, None] * kl_divergence.backward(1.0, cache))
    assert logits.tobytes() == before[0].tobytes() and teacher.tobytes() == before[1].tobytes()


@pytest.mark.parametrize(
    ("teacher", "args", "message"),
    [
        (np.zeros((2, 4)), (), r"\(2, 4\) have to have the student's shape \(2, 3\)"),
        (np.zeros((2, 3)), (0.0,), "temperature has to be positive, not 0.0"),
        (np.zeros((2, 3)), (math.inf,), "temperature has to be positive, not inf"),
        (np.zeros((2, 3)), (math.nan,), "temperature has to be positive, not nan"),
        (np.zeros((2, 3)), (1.0, "batchmean"), "mean, sum, none, not 'batchmean'"),
    ],
)
def test_what_does_not_fit_is_named(teacher, args, message):
    with pytest.raises(ValueError, match=message):
        kl_divergence.forward(np.zeros((2, 3)), teacher, *args)


def test_nothing_has_no_mean():
    none = np.zeros((0, 3))
    with pytest.raises(ValueError, match="no samples"):
        kl_divergence.forward(none, none)
    assert kl_divergence.forward(none, none, reduction="sum")[0] == 0


@pytest.mark.framework
@pytest.mark.parametrize("scale", [1.0, 300.0])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_loss_and_gradient_are_torch_s(reduction, temperature, scale):
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional
    rng = np.random.default_rng(6)
    logits, teacher = scale * rng.standard_normal((2, 5, 7))
    leaf = torch.tensor(logits, requires_grad=True)
    log_p, log_q = (functional.log_softmax(z / temperature, dim=1) for z in (leaf, torch.tensor(teacher)))
    each = temperature**2 * functional.kl_div(log_p, log_q, reduction="none", log_target=True).sum(dim=1)
    theirs = {"mean": each.mean(), "sum": each.sum(), "none": each}[reduction]
    loss, cache = kl_divergence.forward(logits, teacher, temperature, reduction)
    np.testing.assert_allclose(loss, theirs.detach().numpy(), rtol=1e-12, atol=1e-12)
    dloss = np.asarray(rng.standard_normal(np.shape(loss)))
    (expected,) = torch.autograd.grad(theirs, [leaf], torch.tensor(dloss))
    assert expected.abs().max() > 0.1 / 5
    np.testing.assert_allclose(kl_divergence.backward(dloss, cache), expected.numpy(), rtol=1e-12, atol=1e-12)
