"""Muon against singular values, hand-computed steps and its place among the groups; PyTorch's own further below."""

from __future__ import annotations

import dataclasses
from functools import partial

import numpy as np
import pytest

from numpy_vit import tree
from numpy_vit.models import vit
from numpy_vit.training import adamw, groups, muon

SHAPES = [(5, 5), (3, 8), (9, 4), (1, 6), (6, 1)]
CONFIG = vit.Config(image_size=8, patch_size=2, num_classes=3, embed_dim=8, depth=2, num_heads=2)


def iterated(values):
    """The polynomial on singular values of a matrix, which starts at length 1."""
    values = values / np.linalg.norm(values)
    a, b, c = muon.COEFFICIENTS
    for _ in range(muon.STEPS):
        values = a * values + b * values**3 + c * values**5
    return values


@pytest.mark.parametrize("shape", SHAPES)
def test_the_iteration_is_the_polynomial_of_the_singular_values(shape):
    matrix = 3 * np.random.default_rng(0).standard_normal(shape)
    U, values, Vt = np.linalg.svd(matrix, full_matrices=False)
    expected = (U * iterated(values)) @ Vt
    np.testing.assert_allclose(muon.orthogonal(matrix), expected, rtol=1e-9, atol=1e-12)


def test_singular_values_come_near_one_over_two_orders_of_magnitude():
    spread = iterated(np.geomspace(1, 0.02, 30))
    assert spread.min() > 0.6 and spread.max() < 1.25
    assert abs(muon.orthogonal(np.zeros((3, 4)))).max() == 0  # no gradient, no step and no NaN


def test_float32_stays_float32_and_the_gradient_stays_as_it_is():
    rng = np.random.default_rng(0)
    matrix, grad, moment = (rng.standard_normal((6, 4)).astype(np.float32) for _ in range(3))
    before = grad.copy()
    assert muon.orthogonal(grad).dtype == np.float32
    muon.update_matrix(matrix, grad, moment, 0.1, weight_decay=0.1)
    np.testing.assert_array_equal(grad, before)


def test_two_steps_by_hand():
    """A gradient of one direction: its only singular value becomes s, whatever its length."""
    u, v = np.array([[0.6], [0.8]]), np.array([[1.0, 0.0, 0.0]])
    (s,) = iterated(np.array([5.0]))
    matrix, moment = np.ones((2, 3)), np.zeros((2, 3))
    muon.update_matrix(matrix, 7 * u @ v, moment, 0.1, momentum=0.5, weight_decay=0.2)
    first = np.ones((2, 3)) * (1 - 0.02) - 0.1 * 0.2 * np.sqrt(3) * s * u @ v
    np.testing.assert_allclose(matrix, first, rtol=1e-12)
    np.testing.assert_allclose(moment, 3.5 * u @ v, rtol=1e-12)
    # now against the momentum: 0.5·(0.5·3.5 - 0.5·1) + 0.5·(-1) > 0, so the step keeps its direction
    muon.update_matrix(matrix, -1 * u @ v, moment, 0.1, momentum=0.5)
    np.testing.assert_allclose(moment, 1.25 * u @ v, rtol=1e-12)
    np.testing.assert_allclose(matrix, first - 0.1 * 0.2 * np.sqrt(3) * s * u @ v, rtol=1e-12)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.ones(3), np.ones(3), np.ones(3), 0.1), "one matrix"),
        ((np.ones((2, 3)), np.ones((3, 2)), np.ones((2, 3)), 0.1), "one matrix"),
        ((np.ones((2, 3)), np.ones((2, 3)), np.ones((2, 3)), 0.1, 1.0), "momentum"),
    ],
)
def test_what_is_no_matrix_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        muon.update_matrix(*arguments)


def grouped(layer_decay=None):
    params = vit.init(CONFIG, np.random.default_rng(0), np.float64)
    order, parts = groups.parameter_groups(params, 0.1, layer_decay, whole=muon.takes)
    return params, order, parts


@pytest.mark.parametrize("layer_decay", [None, 0.5])
@pytest.mark.parametrize("workers", [1, 2])
def test_the_blocks_matrices_take_muon_and_the_rest_adamw(layer_decay, workers):
    params, order, parts = grouped(layer_decay)
    rng = np.random.default_rng(1)
    grads = tree.map(lambda leaf: rng.standard_normal(leaf.shape), params)
    buffer, packed = tree.pack(params, order)
    state = muon.init(buffer)
    step = partial(muon.update_matrix, momentum=0.9)
    for _ in range(2):
        groups.apply(muon.update, buffer, tree.pack(grads, order)[0], state, parts, 0.01, workers, update_matrix=step)
    assert int(state["step"]) == 2
    scales = {}
    for group in parts:
        for key, start in zip(
            order, np.cumsum([0] + [tree.flatten(params)[key].size for key in order])[:-1], strict=True
        ):
            if group.start <= start < group.stop:
                scales[key] = group.lr_scale
    flat_grads = tree.flatten(grads)
    taken = 0
    for key, leaf in tree.flatten(vit.init(CONFIG, np.random.default_rng(0), np.float64)).items():
        expected, rate = leaf.copy(), 0.01 * scales[key]
        decay = 0.1 if groups.decays(key, leaf) else 0.0
        if muon.takes(key, leaf):
            taken += 1
            moment = np.zeros_like(leaf)
            for _ in range(2):
                muon.update_matrix(expected, flat_grads[key], moment, rate, 0.9, decay)
        else:
            flat, own = expected.ravel().copy(), adamw.init(expected.ravel())
            for _ in range(2):
                adamw.update(flat, flat_grads[key].ravel(), own, rate, weight_decay=decay)
            expected = flat.reshape(leaf.shape)
        np.testing.assert_array_equal(tree.flatten(packed)[key], expected, err_msg=key)
    assert taken == 2 * 4


def test_groups_of_matrices_tile_the_buffer_with_their_shapes():
    params, order, parts = grouped()
    whole = [group for group in parts if group.matrices]
    assert [group.name for group in whole] == ["decay.matrices"]
    assert whole[0].matrices[:4] == ((24, 8), (8, 8), (32, 8), (8, 32))
    assert sum(np.prod(shape) for shape in whole[0].matrices) == whole[0].stop - whole[0].start
    buffer, _ = tree.pack(params, order)
    with pytest.raises(ValueError, match="update_matrix"):
        groups.apply(muon.update, buffer, buffer.copy(), muon.init(buffer), parts, 0.1)
    plain = groups.parameter_groups(params, 0.1)[1]
    assert all(not group.matrices for group in plain)
    assert dataclasses.replace(whole[0], matrices=()) not in plain  # the order differs: matrices stand together


@pytest.mark.framework
@pytest.mark.parametrize("shape", [(7, 5), (4, 9), (6, 6)])
def test_twenty_steps_beside_torch(shape, monkeypatch):
    """torch rounds to bfloat16 inside its iteration; without that, both take the same steps in float64."""
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(3)
    start, grads = rng.standard_normal(shape), rng.standard_normal((20, *shape))
    hyper = {"lr": 0.02, "weight_decay": 0.1, "momentum": 0.9}

    def theirs():
        weight = torch.nn.Parameter(torch.tensor(start))
        steps = torch.optim.Muon([weight], **hyper, adjust_lr_fn="match_rms_adamw")
        for grad in grads:
            weight.grad = torch.tensor(grad)
            steps.step()
        return weight.detach().numpy()

    ours, moment = start.copy(), np.zeros(shape)
    for grad in grads:
        muon.update_matrix(ours, grad, moment, **hyper)
    rounded = theirs()
    monkeypatch.setattr(torch.Tensor, "bfloat16", lambda self: self)
    np.testing.assert_allclose(ours, theirs(), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(ours, rounded, atol=0.02)
    assert abs(ours - start).max() > 0.1
