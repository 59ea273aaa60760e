"""Exercises: their sheets give nothing away, our own backwards are right, and typical wrong ones get the right hint."""

from __future__ import annotations

import ast
import inspect
import json
from types import ModuleType

import numpy as np
import pytest

from numpy_vit import tree
from numpy_vit.checks import catalogue
from numpy_vit.checks.exercises import steps, tasks
from numpy_vit.checks.exercises.judging import Verdict, judge
from numpy_vit.checks.exercises.mistakes import MISTAKES, step, with_mistake
from numpy_vit.checks.exercises.sheet import sheet

NAMES = tasks.names()
# Of each mistake of the table in its order, the step that it breaks, read off the derivations by hand.
BROKEN = {
    "linear": "3434", "patchify": "222", "patch_embed": "212", "prefix_tokens": "2221", "position_table": "222",
    "layernorm": "55515515", "softmax": "2222", "dot_product_attention": "555332526644", "attention": "443311",
    "readout_attention": "55431", "gelu": "2222", "gelu_tanh": "113", "quick_gelu": "222", "relu": "111", "mlp": "221",
    "silu": "222", "swiglu": "4322", "dropout": "222", "drop_path": "222", "patch_dropout": "111", "layer_scale": "122",
    "block": "133232", "post_norm_block": "1332", "readout_block": "1332", "encoder": "111", "token_pool": "111",
    "mean_pool": "111", "token_and_mean_pool": "122", "attention_pool": "1433", "tanh": "111", "pre_logits": "111",
    "cross_entropy": "333223", "kl_divergence": "2223", "mse": "2222", "random_masking": "334", "mask_tokens": "244",
    "masked_patch_loss": "222",
}  # fmt: skip
SLOW = {  # a third of a second or more a verdict
    "dot_product_attention", "attention", "readout_attention", "attention_pool", "block", "post_norm_block",
    "readout_block", "encoder",
}  # fmt: skip


def quick(names):
    return [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in names]


def source_of(node, source):
    return "\n".join(source.splitlines()[node.lineno - 1 : node.end_lineno])


def solved(name):
    """The sheet with our own backward in it, and with what only that backward uses."""
    module = ModuleType("solution")
    exec(compile(sheet(name), f"{name} sheet", "exec"), module.__dict__)
    source = inspect.getsource(catalogue.module(name))
    for node in ast.parse(source).body:
        names = [getattr(node, "name", ""), *(getattr(target, "id", "") for target in getattr(node, "targets", []))]
        if isinstance(node, ast.FunctionDef | ast.Assign) and (
            "backward" in names or not any(one in module.__dict__ for one in names if one)
        ):
            exec(compile(source_of(node, source), f"{name} solution", "exec"), module.__dict__)
    return module


def changed(name, change):
    """Our layer with a backward whose answer is changed afterwards."""
    ours, module = catalogue.module(name), ModuleType("changed")

    def backward(*arguments, **options):
        return change(ours.backward(*arguments, **options))

    module.forward, module.backward = ours.forward, backward
    return module


def body(function):
    """The lines of a function that say something."""
    node = ast.parse(inspect.getsource(function)).body[0]
    lines = inspect.getsource(function).splitlines()[node.body[1].lineno - 1 :]
    return {line.split("#")[0].strip() for line in lines if len(line.split("#")[0].strip()) > 12}


def test_every_layer_is_an_exercise_and_no_model():
    assert list(tasks.STEPS) == NAMES == [name for name in catalogue.names() if name not in ("vit", "deit", "mae")]
    with pytest.raises(ValueError, match="unknown exercise 'vit'"):
        tasks.check("vit")


@pytest.mark.parametrize("name", NAMES)
def test_the_sheet_is_python_and_gives_nothing_away(name):
    text = sheet(name)
    module = ModuleType("sheet")
    exec(compile(text, "sheet", "exec"), module.__dict__)
    assert max(map(len, text.splitlines())) <= 120
    ours = catalogue.module(name)
    shared = body(ours.forward) | {line for line in body(ours.backward) if " = cache" in line}
    answers = {line for line in body(ours.backward) - shared if line not in text.split("def backward")[0]}
    assert not [line for line in answers if line in text.split("def backward")[1]]
    for line in steps.steps(ours).values():
        assert line.split("⇒")[-1].strip() not in text
    with pytest.raises(NotImplementedError):
        module.backward(None, None)
    case = catalogue.cases(name)[0]
    for key, leaf in tree.flatten(case.params or {}).items():
        assert f"params.{key} {np.shape(leaf)}" in text
    _, cache = case.forward(case.x) if case.params is None else case.forward(case.params, case.x)
    packed = text.split("and the cache:")[1].split('"""')[0].split("\n")
    assert len([line for line in packed if line.strip()]) == len(cache)
    for array in (entry for entry in cache if isinstance(entry, np.ndarray)):
        assert any(line.endswith(f" {array.shape}") for line in packed)


@pytest.mark.parametrize("name", quick(NAMES))
def test_our_own_backward_solves_the_sheet(name):
    verdict = judge(name, solved(name))
    assert (verdict.status, verdict.text) == ("right", "")
    assert verdict.gradients >= 1


@pytest.mark.parametrize("name", NAMES)
def test_every_gradient_has_steps_that_the_derivation_has(name):
    derivation = steps.steps(catalogue.module(name))
    assert list(derivation) == list(range(1, len(derivation) + 1))
    assert all(step in derivation for wanted in tasks.STEPS[name].values() for step in wanted)
    for case in catalogue.cases(name):
        inputs = {"x": case.x} if isinstance(case.x, np.ndarray) else {"x": dict(enumerate(case.x))}
        for key in tree.flatten({**inputs, "params": case.params or {}}):
            assert tasks.first_wrong(name, [key])[0] == key
            begins = [begin for begin in tasks.STEPS[name] if key == begin or key.startswith(begin + ".")]
            assert begins, f"{name}: {key} has no step"


@pytest.mark.parametrize(
    ("name", "what", "old", "new"),
    [
        pytest.param(*row, id=f"{row[0]}: {row[1]}", marks=[pytest.mark.slow] if row[0] in SLOW else [])
        for row in MISTAKES
    ],
)
def test_a_typical_mistake_is_recognised(name, what, old, new):
    verdict = judge(name, with_mistake(name, (old, new)))
    assert verdict.status == "wrong"
    assert verdict.text.startswith(f"a known mistake: {what}\n")
    assert verdict.wrong and verdict.steps[0] == step(name, what)
    assert set(verdict.steps) >= set(tasks.first_wrong(name, list(verdict.wrong))[1])


def test_every_exercise_has_typical_mistakes_and_their_steps():
    assert all(sum(name == row[0] for row in MISTAKES) >= 3 for name in NAMES)
    assert {name: "".join(str(step(*row[:2])) for row in MISTAKES if row[0] == name) for name in NAMES} == BROKEN


def test_of_two_mistakes_at_once_the_first_is_recognised():
    """Both parameters' gradients are divided, so that no row of the table has the same gradients."""
    (_, _, *weight), (_, _, *bias) = (
        next(row for row in MISTAKES if row[:2] == ("linear", what))
        for what in ("weight divided by the rows", "bias: mean instead of sum")
    )
    verdict = judge("linear", with_mistake("linear", tuple(weight), tuple(bias)))
    assert verdict.wrong == ("params.bias", "params.weight")
    assert verdict.text.startswith("a known mistake: bias: mean instead of sum\n")
    assert verdict.steps == (4,)


def first(answer):
    return answer[0] if isinstance(answer, tuple) else answer


@pytest.mark.parametrize("name", quick(name for name in NAMES if catalogue.cases(name)[0].params is None))
def test_mistakes_that_no_table_knows_without_parameters(name):
    """A factor, the sign, nothing at all: by gradcheck's words, for the input's gradient."""

    def scaled(factor):
        return lambda answer: tree.map(lambda leaf: None if leaf is None else factor * leaf, answer)

    for factor, words in ((0.5, "2 times too small"), (-1.0, "sign"), (3.0, "3 times too large")):
        verdict = judge(name, changed(name, scaled(factor)))
        assert verdict.status == "wrong"
        assert verdict.wrong[0].split(".")[0] == "x"
        assert words in verdict.text
        # In another order where the table knows the mistake after all: the sign, or mse without its factor of 2.
        assert set(verdict.steps) == set(tasks.first_wrong(name, list(verdict.wrong))[1])


@pytest.mark.parametrize("name", quick(name for name in NAMES if catalogue.cases(name)[0].params is not None))
def test_mistakes_that_no_table_knows_with_parameters(name):
    """One parameter's gradient doubled or of the wrong sign: it alone is named, with its step."""
    keys = list(tree.flatten(catalogue.cases(name)[0].params))
    key = keys[-1] if name not in SLOW else keys[0]

    def spoiled(factor):
        def change(answer):
            *others, grads = answer
            flat = dict(tree.flatten(grads))
            flat[key] = factor * flat[key]
            return (*others, tree.unflatten(flat))

        return change

    for factor, words in ((2.0, "2 times too large"), (-1.0, "sign")):
        verdict = judge(name, changed(name, spoiled(factor)))
        assert verdict.status == "wrong"
        assert verdict.wrong == (f"params.{key}",)
        assert words in verdict.text
        assert verdict.steps == tasks.first_wrong(name, [f"params.{key}"])[1]


@pytest.mark.parametrize("name", quick(NAMES))
def test_a_gradient_of_zeros_of_one_sample_or_of_none(name):
    """Each of them for the input's gradient alone: it is named, and nothing else is."""
    wants = catalogue.cases(name)[0].params is not None

    def spoiled(spoil):
        def change(answer):
            if not isinstance(answer, tuple):
                return spoil(answer)
            return (*map(spoil, answer[:-1]), answer[-1]) if wants else tuple(map(spoil, answer))

        return change

    def zero(leaf):
        return None if leaf is None else np.zeros_like(leaf)

    def alone(leaf):
        """That of sample 0, and zero elsewhere."""
        return None if leaf is None else np.concatenate([leaf[:1], np.zeros_like(leaf[1:])])

    none = "is missing" if name == "dot_product_attention" else "is None"  # its gradients lie in a tuple
    for spoil, words in ((zero, "is zero"), (alone, ""), (lambda leaf: None, none)):
        verdict = judge(name, changed(name, spoiled(spoil)))
        assert verdict.status == "wrong"
        assert {key.split(".")[0] for key in verdict.wrong} == {"x"}
        assert words in verdict.text
        assert set(verdict.steps) >= set(tasks.first_wrong(name, list(verdict.wrong))[1])


@pytest.mark.parametrize("name", [name for name in NAMES if catalogue.cases(name)[0].params and name not in SLOW])
def test_a_parameter_not_summed_over_the_batch_or_transposed(name):
    """The gradient of sample 0 alone, and the transpose of a matrix: by name, words and step."""
    ours = catalogue.module(name)
    key = next(reversed(tree.flatten(catalogue.cases(name)[0].params)))

    def learner(change):
        module = ModuleType("learner")

        def backward(dy, cache, *arguments, **options):
            *others, grads = ours.backward(dy, cache, *arguments, **options)
            flat = dict(tree.flatten(grads))
            flat[key] = change(flat[key], dy, cache)
            return (*others, tree.unflatten(flat))

        module.forward, module.backward = ours.forward, backward
        return module

    def first_sample(grad, dy, cache):
        alone = np.zeros_like(dy)
        alone[0] = dy[0]
        return tree.flatten(ours.backward(alone, cache)[-1])[key]

    verdict = judge(name, learner(first_sample))
    assert verdict.wrong == (f"params.{key}",)
    assert "sample 0 alone: it is not summed over the batch" in verdict.text
    assert set(verdict.steps) >= set(tasks.first_wrong(name, [f"params.{key}"])[1])
    verdict = judge(name, learner(lambda grad, dy, cache: np.swapaxes(grad, -1, -2) if grad.ndim > 1 else grad[None]))
    assert verdict.status == "wrong" and verdict.wrong == (f"params.{key}",)
    assert "transposed" in verdict.text or "shape" in verdict.text


def test_shapes_forms_and_errors():
    def module(backward, forward=None):
        made = ModuleType("learner")
        made.forward, made.backward = forward or catalogue.module("linear").forward, backward
        return made

    ours = catalogue.module("linear").backward

    def transposed(dy, cache):
        dx, grads = ours(dy, cache)
        return dx, {**grads, "weight": grads["weight"].T}

    assert "transposed" in judge("linear", module(transposed)).text
    assert judge("linear", module(lambda dy, cache: (ours(dy, cache)[0], {}))).wrong[:1] == ("params.bias",)
    bare = judge("linear", module(lambda dy, cache: ours(dy, cache)[0]))
    assert (bare.status, bare.steps) == ("wrong", (1, 2, 3, 4)) and "must answer (dx, grads), not ndarray" in bare.text
    no_grads = judge("linear", module(lambda dy, cache: (ours(dy, cache)[0], dict.fromkeys(("weight", "bias")))))
    assert no_grads.wrong == ("params.bias", "params.weight")

    def summed(dy, cache):
        dx, grads = ours(dy[:1], cache) if dy.ndim < 3 else ours(dy, cache)
        return dx, {**grads, "bias": dy.reshape(-1, dy.shape[-1])[0]}

    assert judge("linear", module(summed)).wrong == ("params.bias",)

    def writes(dy, cache):
        answer = ours(dy, cache)
        dy *= 2
        return answer

    written = judge("linear", module(writes))
    assert (written.text, written.steps) == ("backward writes to its input: dy", ())

    def empty(dy, cache):
        raise NotImplementedError("your turn")

    assert judge("linear", module(empty)).status == "empty"

    def fails(dy, cache):
        return dy @ np.zeros((3, 3, 3, 3))[9]

    failed = judge("linear", module(fails))
    assert failed.status == "wrong" and failed.text.startswith("backward fails: IndexError")
    assert failed.steps == (1, 2, 3, 4)

    def other(params, x):
        y, cache = catalogue.module("linear").forward(params, x)
        return 2 * y, cache

    assert judge("linear", module(ours, other)).text.startswith("forward gives other numbers")
    assert judge("linear", ModuleType("nothing")).text.startswith("the file has no function forward")

    def raises(params, x):
        raise KeyError("weigth")

    failed = judge("linear", module(ours, raises))
    assert (failed.status, failed.text) == ("broken", "the file fails: KeyError: 'weigth'")


def test_another_cache_is_welcome():
    made = ModuleType("learner")
    ours = catalogue.module("tanh")

    def forward(x):
        y, _ = ours.forward(x)
        return y, x

    made.forward, made.backward = forward, lambda dy, x: dy / np.cosh(x) ** 2
    assert judge("tanh", made).status == "right"


def test_hints_never_repeat_themselves_nor_show_code():
    for name in NAMES:
        layer = catalogue.module(name)
        code = body(layer.backward)
        for wanted in tasks.STEPS[name].values():
            told = steps.hints(layer, wanted)
            assert len(set(told)) == len(told) >= 2
            assert not any(line in text for line in code for text in told)


def test_a_verdict_survives_json():
    verdict = Verdict("linear", "wrong", "words", "example", 2, {"x": 1e-12}, ("params.bias",), (4,))
    assert Verdict.from_json(json.loads(json.dumps(verdict.to_json()))) == verdict


def test_a_right_verdict_has_the_errors_of_its_gradients():
    verdict = judge("linear", catalogue.module("linear"))
    assert set(verdict.errors) == {"x", "params.weight", "params.bias"}
    assert all(0 < error <= 1e-9 for error in verdict.errors.values())
