"""Break every backward on purpose and demand that the very check that passes it notices.

Three kinds: the answer of a right backward is spoiled (a factor of 1.001, a transpose, one sample of the batch only);
a line of the layer's source is replaced; and, as the control of the controls, nothing is replaced.
"""

from __future__ import annotations

import numpy as np
import pytest

from numpy_vit import tree
from numpy_vit.checks import catalogue, gradcheck
from numpy_vit.checks.examples import MODELS
from numpy_vit.checks.exercises.mistakes import MISTAKES, with_mistake

NAMES = catalogue.names()
CASES = {name: catalogue.cases(name) for name in NAMES}
# Checked along two directions an array rather than entry by entry, since they are large; whole models along one.
LARGE = {"attention", "readout_attention", "attention_pool", "block", "post_norm_block", "readout_block"}


def check(name, case, backward=None):
    directions = {"vit": 1, "mae": 1}.get(name, 2 if name in LARGE else None)
    report = gradcheck(case.forward, backward or case.backward, case.params, case.x, directions=directions)
    assert report.rows, f"numbers have to be compared: {report}"
    return report


def wrong(report):
    return {row.name for row in report.rows if not row.ok} - {"everything"}


def spoiled(case, spoil_dx=None, spoil_grads=None):
    """Return a backward whose input gradients or parameter gradients are spoiled afterwards."""

    def backward(dy, cache):
        answer = case.backward(dy, cache)
        dx, grads = (answer, None) if case.params is None else answer
        if spoil_dx is not None:
            dx = tree.map(spoil_dx, dx)
        if spoil_grads is not None:
            flat = dict(tree.flatten(grads))
            key, spoil = spoil_grads
            flat[key] = spoil(flat[key], dy, cache)
            grads = tree.unflatten(flat)
        return dx if case.params is None else (dx, grads)

    return backward


@pytest.mark.parametrize(
    ("name", "factor"),
    [
        pytest.param(name, f, marks=[pytest.mark.slow] if name in MODELS else [])
        for name in NAMES
        for f in (1.001, 0.0, -1.0)
        if name not in MODELS or (f == 1.001 and name != "mae")  # which has no gradient of its images
    ],
)
def test_a_scaled_input_gradient(name, factor):
    case = CASES[name][0]
    report = check(name, case, spoiled(case, spoil_dx=lambda dx: factor * dx))
    found = wrong(report)
    assert found
    assert all(row.startswith("x") for row in found)  # and the parameters' gradients are right


# Of the encoder one block, and of that two by default: a failed check goes entry by entry, for seconds.
ENCODER = ("1.attn.qkv.weight", "1.mlp.fc2.bias")
PARAMETERS = [
    pytest.param(name, key, marks=[pytest.mark.slow] if name == "encoder" and key not in ENCODER else [])
    for name in NAMES
    if name not in MODELS
    for key in tree.flatten(CASES[name][0].params or {})
    if name != "encoder" or key.startswith("1.")
]


@pytest.mark.parametrize(("name", "key"), PARAMETERS)
def test_a_scaled_parameter_gradient(name, key):
    case = CASES[name][0]
    backward = spoiled(case, spoil_grads=(key, lambda grad, dy, cache: 1.001 * grad))
    assert wrong(check(name, case, backward)) == {f"params.{key}"}


@pytest.mark.parametrize(("name", "key"), PARAMETERS)
def test_a_gradient_of_the_first_sample_only(name, key):
    case = CASES[name][0]

    def first_sample(grad, dy, cache):
        alone = np.zeros_like(dy)
        alone[0] = dy[0]
        return tree.flatten(case.backward(alone, cache)[1])[key]

    assert wrong(check(name, case, spoiled(case, spoil_grads=(key, first_sample)))) == {f"params.{key}"}


SQUARE = [
    (name, i, key)
    for name in NAMES
    if name not in MODELS
    for i, case in enumerate(CASES[name][: 1 if name == "encoder" else 2])
    if case.params is not None
    for key, leaf in tree.flatten(case.params).items()
    if leaf.ndim == 2 and leaf.shape[0] == leaf.shape[1]
]


@pytest.mark.parametrize(("name", "i", "key"), SQUARE)
def test_a_transposed_gradient(name, i, key):
    case = CASES[name][i]
    report = check(name, case, spoiled(case, spoil_grads=(key, lambda grad, dy, cache: grad.T)))
    assert wrong(report) == {f"params.{key}"}
    assert "transposed" in report.diagnosis


@pytest.mark.parametrize("name", NAMES)
def test_a_module_run_anew_is_right(name):
    case = catalogue.cases(name, of=with_mistake(name))[0]
    check(name, case).raise_if_failed()


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        pytest.param(name, old, new, id=f"{name}: {what}", marks=[pytest.mark.slow] if name == "encoder" else [])
        for name, what, old, new in MISTAKES
    ],
)
def test_a_fault_in_the_source_is_noticed(name, old, new):
    broken = catalogue.cases(name, of=with_mistake(name, (old, new)))
    assert any(not check(name, case).ok for case in broken)


def test_every_layer_has_at_least_two_faults():
    assert all(sum(name == fault[0] for fault in MISTAKES) >= 2 for name in NAMES if name not in MODELS)


VIT_FAULTS = [
    # what is wrong, the number of the example that shows it, the text, what takes its place
    ("the last norm is skipped", 0, 'dx, grads["norm"] = optional', '_, grads["norm"] = optional'),
    ("positions counted twice", 0, "grads |= dposition", 'grads |= {"pos_embed": 2 * dposition["pos_embed"]}'),
    ("the norm after pooling is skipped", 1, 'dx, grads["fc_norm"] = optional', '_, grads["fc_norm"] = optional'),
    ("the norm before the blocks is skipped", 5, 'dx, grads["norm_pre"] = optional', '_, grads["norm_pre"] = optional'),
    ("pre-logits skipped for the wrong form", 7, 'dx, grads["pre_logits"] = optional.backward(dx, c_pre_logits)',
     'grads["pre_logits"] = optional.backward(2 * dx, c_pre_logits)[1]; dx = optional.backward(dx, c_pre_logits)[0]'),
    ("the dropout before the head is skipped", 9, 'dx = dropout.backward(dx, c_drop)\n    dx, grads["pre_logits"]',
     'dx, grads["pre_logits"]'),
    ("the dropout after the positions is skipped", 9,
     "dx = dropout.backward(dx, c_drop)\n    dx, dposition", "dx, dposition"),
]  # fmt: skip


DEIT_FAULTS = [  # two: a failed check of a model goes entry by entry, and takes seconds
    ("the heads exchanged", 0, "dlabels, dteacher = dlogits", "dteacher, dlabels = dlogits"),
    ("a dropout is skipped", 2, "dx[:, 0] = dropout.backward(dtoken, c_drop)", "dx[:, 0] = dtoken"),
]


MAE_FAULTS = [
    ("the scatter is skipped", 0, "dx = random_masking.backward(dx, c_masking)",
     "dx = np.pad(dx, ((0, 0), (0, 7), (0, 0)))"),
    ("the encoder's norm is skipped", 1, 'dx, grads["norm"] = layernorm', '_, grads["norm"] = layernorm'),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("i", "old", "new"), [pytest.param(i, old, new, id=what) for what, i, old, new in MAE_FAULTS])
def test_a_fault_in_mae_is_noticed(i, old, new):
    assert not check("mae", catalogue.cases("mae", of=with_mistake("mae", (old, new)))[i]).ok


@pytest.mark.slow
@pytest.mark.parametrize(("i", "old", "new"), [pytest.param(i, old, new, id=what) for what, i, old, new in DEIT_FAULTS])
def test_a_fault_in_deit_is_noticed(i, old, new):
    assert not check("deit", catalogue.cases("deit", of=with_mistake("deit", (old, new)))[i]).ok


@pytest.mark.parametrize(
    ("i", "old", "new"),
    [
        pytest.param(i, old, new, id=what, marks=[pytest.mark.slow] if number else [])
        for number, (what, i, old, new) in enumerate(VIT_FAULTS)
    ],
)
def test_a_fault_in_the_model_is_noticed(i, old, new):
    assert not check("vit", catalogue.cases("vit", of=with_mistake("vit", (old, new)))[i]).ok
