"""Hints: they follow a derivation's steps one by one, and the first never says what to write."""

from __future__ import annotations

from types import ModuleType

import pytest

from numpy_vit.checks import catalogue
from numpy_vit.checks.exercises import steps, tasks
from numpy_vit.checks.exercises.judging import judge
from numpy_vit.checks.exercises.sheet import sheet

NAMES = tasks.names()


def test_the_marks_of_the_code_say_which_step_it_uses():
    marked = steps.marked
    attention, layernorm = catalogue.module("dot_product_attention"), catalogue.module("layernorm")
    assert marked(layernorm, "dx *= rstd") == (5,)  # its own mark
    assert marked(layernorm, "along += _mean(dx)") == (5,)  # that of the next line
    assert marked(attention, "dp = dropout.backward") == (2, 3)
    assert marked(attention, "return dq, dk, dv, dbias") == (5,)  # there is none below
    assert marked(layernorm, "rstd = 1 / np.sqrt") == ()  # forward has none, and backward's are not its own


def test_hints_name_the_step_then_what_it_starts_from_then_say_it():
    layer = catalogue.module("layernorm")
    derivation = steps.steps(layer)
    assert list(derivation) == [1, 2, 3, 4, 5]
    about, *told = steps.hints(layer, (5,))
    assert about == "step (5) is about dx_j"
    assert told == [f"step ({k}): {derivation[k]}" for k in (4, 5, 3, 2, 1)]  # (5) starts from (4), and does not say so
    about, premise, told = steps.hints(layer, (1,))
    assert about == "step (1) is about dw_i, db_i, dx̂_i"
    assert premise == "step (1) starts from: y_i = w_i x̂_i + b_i"
    assert told == f"step (1): {derivation[1]}"
    assert steps.hints(catalogue.module("swiglu"), (4,))[0] == "step (4) is about d[g, v]"
    assert steps.hints(catalogue.module("softmax"), (1,)) == [
        "step (1) is about ∂y_i/∂x_j", "step (1): ∂y_i/∂x_j = y_i (δ_ij - y_j)",
    ]  # fmt: skip
    assert steps.hints(catalogue.module("block"), (2,))[0] == "step (2) starts from: g = drop_path ∘ ls2 ∘ mlp ∘ norm2"


def right_sides(text):
    """What the first hint must not say: the conclusion, and what its equations have on the right."""
    conclusion = text.split("⇒")[-1] if "⇒" in text else text.split(": ", 1)[-1] if ": " in text else text
    equations = [clause for clause in conclusion.replace(";", ",").split(",  ") if " = " in clause]
    return [conclusion.strip(), *(side.strip() for clause in equations for side in clause.split(" = ")[1:])]


def says(hint, text):
    return any(side in hint for side in right_sides(text))


def test_the_first_hint_never_says_the_right_hand_side():
    """Towards every gradient, and towards every step alone, since a known mistake may name any of them."""
    gradients = [(name, wanted) for name in NAMES for wanted in tasks.STEPS[name].values()]
    assert len(gradients) == 89
    alone = [(name, (k,)) for name in NAMES for k in steps.steps(catalogue.module(name))]
    for name, wanted in gradients + alone:
        layer = catalogue.module(name)
        text, told = steps.steps(layer)[wanted[0]], steps.hints(layer, wanted)
        assert not says(told[0], text), f"{name}: {told[0]}"
        assert any(says(hint, text) for hint in told[1:])  # a later one does, so that the check can fail


def first_clause(text):
    """A first hint that goes wrong: what stands before the first mark, and the whole step where there is none."""
    mark = next((mark for mark in ("⇒", "; ", ": ", ",  ") if mark in text), "⇒")
    return text.split(mark)[0].strip()


def test_the_check_of_first_hints_finds_those_that_say_it():
    found = {
        (name, gradient)
        for name in NAMES
        for gradient, wanted in tasks.STEPS[name].items()
        for text in [steps.steps(catalogue.module(name))[wanted[0]]]
        if says(first_clause(text), text)
    }
    assert found == {
        *((name, "x") for name in ("layernorm", "softmax", "gelu_tanh", "dropout", "drop_path", "mse")),
        ("masked_patch_loss", "x"), ("layer_scale", "params.gamma"),
        *(("post_norm_block", f"params.{part}") for part in ("ls1", "attn", "ls2", "mlp")),
    }  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_the_hints_of_an_empty_sheet_lead_through_every_step(name):
    """Each is said once, in order, and only after a hint of its own that does not say it."""
    empty, layer = ModuleType("sheet"), catalogue.module(name)
    exec(compile(sheet(name), "sheet", "exec"), empty.__dict__)
    verdict = judge(name, empty)
    derivation = steps.steps(layer)
    assert (verdict.status, verdict.steps) == ("empty", tuple(derivation))
    told, start = steps.hints(layer, verdict.steps), 0
    for k, text in derivation.items():
        end = told.index(f"step ({k}): {text}")
        assert 1 <= end - start <= 2
        for hint in told[start:end]:
            assert hint.startswith(f"step ({k}) ") and text not in hint
        assert not says(told[start], text)
        start = end + 1
    assert start == len(told)


def test_steps_of_several_lines_are_joined():
    derivation = steps.steps(catalogue.module("mask_tokens"))
    assert derivation[4].endswith("its gradient is the sum of dz_bi over b and i >= K")
    assert derivation[5] == "a prefix token stays where it is   ⇒  its dx is its dy"
