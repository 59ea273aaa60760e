"""Break every backward on purpose and demand that the very check that passes it notices.

Three kinds: the answer of a right backward is spoiled (a factor of 1.001, a transpose, one sample of the batch only);
a line of the layer's source is replaced; and, as the control of the controls, nothing is replaced.
"""

from __future__ import annotations

import inspect
from types import ModuleType

import numpy as np
import pytest

from numpy_vit import tree
from numpy_vit.checks import catalogue, gradcheck
from numpy_vit.checks.examples import MODELS

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
        (name, f)
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


PARAMETERS = [
    (name, key)
    for name in NAMES
    if name not in MODELS
    for key in tree.flatten(CASES[name][0].params or {})
    if name != "encoder" or key.startswith("1.")  # one of its blocks: a failed check goes entry by entry, for seconds
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


def mutant(name, *replacements):
    """Return the layer's module, run anew from its source with pieces of text replaced."""
    original = catalogue.module(name)
    source = inspect.getsource(original)
    for old, new in replacements:
        assert source.count(old) == 1, f"{name}: {old!r} occurs {source.count(old)} times"
        source = source.replace(old, new)
    module = ModuleType(original.__name__)  # dataclasses look their module up by this name
    module.__file__ = original.__file__
    exec(compile(source, f"mutant of {name}", "exec"), module.__dict__)
    return module


@pytest.mark.parametrize("name", NAMES)
def test_a_module_run_anew_is_right(name):
    case = catalogue.cases(name, of=mutant(name))[0]
    check(name, case).raise_if_failed()


FAULTS = [
    # layer, what is wrong, the text of the layer's source, what takes its place
    ("linear", "rows in the wrong order",
     "rows.T @ x.reshape(-1, x.shape[-1])", "rows[::-1].T @ x.reshape(-1, x.shape[-1])"),
    ("linear", "bias: mean instead of sum", "np.ones(len(rows), rows.dtype) @ rows", "rows.mean(axis=0)"),
    ("linear", "weight divided by the rows", "x.reshape(-1, x.shape[-1])}", "x.reshape(-1, x.shape[-1]) / len(rows)}"),
    ("linear", "bias of the last row", "np.ones(len(rows), rows.dtype) @ rows", "rows[-1]"),
    ("patchify", "channel last", "grid.transpose(0, 3, 1, 4, 2, 5)", "grid.transpose(0, 3, 1, 4, 2, 5)[:, ::-1]"),
    ("patchify", "the patch's rows upside-down",
     "grid.transpose(0, 3, 1, 4, 2, 5)", "grid[..., ::-1, :].transpose(0, 3, 1, 4, 2, 5)"),
    ("patchify", "grid column by column",
     "dpatches.reshape(B, Y // py, X // px, C, py, px)",
     "dpatches.reshape(B, X // px, Y // py, C, py, px).swapaxes(1, 2)"),
    ("patch_embed", "patch weight transposed",
     '["weight"].reshape(weight_shape)', '["weight"].T.reshape(weight_shape)'),
    ("patch_embed", "the norm is skipped", "dtokens, grads[\"norm\"] = optional", "_, grads[\"norm\"] = optional"),
    ("patch_embed", "weight over the batch",
     '["weight"].reshape(weight_shape)', '["weight"].reshape(weight_shape) / len(dtokens)'),
    ("prefix_tokens", "not summed over the batch", ".sum(axis=0, keepdims=True)", "[:1]"),
    ("prefix_tokens", "mean over the batch", ".sum(axis=0, keepdims=True)", ".mean(axis=0, keepdims=True)"),
    ("prefix_tokens", "registers start at the class token", "        start += size", "        start += 0 * size"),
    ("prefix_tokens", "dx from the wrong end",
     "return dy[:, start:], grads", "return dy[:, : dy.shape[1] - start], grads"),
    ("position_table", "not summed over the batch", ".sum(axis=0, keepdims=True)", "[:1]"),
    ("position_table", "rows of the wrong tokens",
     "dy[:, first:].sum(axis=0, keepdims=True)", "dy[:, : dy.shape[1] - first].sum(axis=0, keepdims=True)"),
    ("layernorm", "no mean term", "    along += _mean(dx)\n", ""),
    ("layernorm", "no projection term", "along = xhat * (", "along = 0 * xhat * ("),
    ("layernorm", "no 1/sigma", "dx *= rstd  # (5)", "pass"),
    ("layernorm", "gamma forgotten", 'dx = dy * params["weight"]', "dx = dy * 1.0"),
    ("layernorm", "the mean term of the whole batch", "along += _mean(dx)", "along += dx.mean()"),
    ("layernorm", "variance over D - 1", "xhat)[..., None] / D)", "xhat)[..., None] / (D - 1))"),
    ("layernorm", "weight's gradient from x instead of x̂",
     "(rows * xhat.reshape(-1, D))", "(rows * (xhat / rstd).reshape(-1, D))"),
    ("layernorm", "eps forgotten in backward",
     "return y, (params, xhat, rstd)", "return y, (params, xhat, 1 / np.sqrt(variance))"),
    ("softmax", "no sum", "dx: Array = dy - np.vecdot(dy, y)[..., None]", "dx: Array = dy * 1.0"),
    ("softmax", "sum without y", "np.vecdot(dy, y)[..., None]", "dy.sum(axis=-1, keepdims=True)"),
    ("softmax", "sum over the wrong axis", "np.vecdot(dy, y)[..., None]", "(dy * y).sum(axis=-2, keepdims=True)"),
    ("softmax", "no product", "    dx *= y  # (2)", "    pass"),
    ("dot_product_attention", "no scale in dq", "    dq *= 1 / math.sqrt(q.shape[-1])\n    return", "    return"),
    ("dot_product_attention", "scale of d instead of sqrt d",
     "dq *= 1 / math.sqrt(q.shape[-1])", "dq *= 1 / q.shape[-1]"),
    ("dot_product_attention", "q scaled twice in dk",
     "dk += ds.swapaxes(-1, -2) @ q[:, :, rows]", "dk += ds.swapaxes(-1, -2) @ q[:, :, rows] / math.sqrt(q.shape[-1])"),
    ("dot_product_attention", "softmax skipped", "softmax.backward(dp, (p,))", "dp"),
    ("dot_product_attention", "dropout's mask forgotten",
     "dropout.backward(do[:, :, rows] @ v.swapaxes(-1, -2), c_drop)", "do[:, :, rows] @ v.swapaxes(-1, -2)"),
    ("dot_product_attention", "dv from weights before dropout", "dropped = dropout.backward(p, c_drop)", "dropped = p"),
    ("dot_product_attention", "only the last chunk in dk", "        dk += ds", "        dk[...] = ds"),
    ("dot_product_attention", "only the last chunk in dv", "        dv += dropped", "        dv[...] = dropped"),
    ("dot_product_attention", "every chunk computed from the first queries",
     "    p = _softmaxed(q[:, :, rows], k, _rows_of(bias, rows))  # (6)",
     "    p = _softmaxed(q[:, :, : rows.stop - rows.start], k, _rows_of(bias, rows))"),
    ("dot_product_attention", "the bias of the first queries", "_rows_of(bias, rows))  # (6)",
     "_rows_of(bias, slice(0, rows.stop - rows.start)))"),
    ("dot_product_attention", "bias not summed over broadcast axes",
     "summed.sum(axis=stretched, keepdims=True)", "summed.mean(axis=stretched, keepdims=True)"),
    ("dot_product_attention", "bias's leading axes averaged",
     "array.sum(axis=tuple(range(array.ndim - len(shape))))", "array.mean(axis=tuple(range(array.ndim - len(shape))))"),
    ("attention", "q and k swapped", "_join(dq, dk, dv)", "_join(dk, dq, dv)"),
    ("attention", "k and v swapped", "_join(dq, dk, dv)", "_join(dq, dv, dk)"),
    ("attention", "the k norm is skipped", 'dk, dk_norm = optional', '_, dk_norm = optional'),
    ("attention", "the q norm's gradients are the k norm's", '"q_norm": dq_norm', '"q_norm": dk_norm'),
    ("attention", "heads in the wrong order",
     "do = split_heads(dy, num_heads)", "do = split_heads(dy, num_heads)[:, ::-1]"),
    ("attention", "dropout's mask forgotten", "dy = dropout.backward(dy, c_drop)", "pass"),
    ("gelu", "slope without x phi", "            slope *= _ROOT\n", "            slope *= 0\n"),
    ("gelu", "phi's sign wrong", "slope *= _ROOT", "slope *= -_ROOT"),
    ("gelu", "slope without Phi", "            slope += erfs\n            slope += 1\n", ""),
    ("gelu", "bell without the half", "slope *= -0.5", "slope *= -1.0"),
    ("gelu_tanh", "no inner derivative", "(1 + 3 * _CUBIC * near * near)", "1.0"),
    ("gelu_tanh", "3 k x² without the 3", "(1 + 3 * _CUBIC * near * near)", "(1 + _CUBIC * near * near)"),
    ("gelu_tanh", "tanh' forgotten", "(1 - ts * ts) * ", ""),
    ("relu", "every entry passes", "dy * (y > 0)", "dy + 0 * y"),
    ("relu", "the wrong side", "dy * (y > 0)", "dy * (y == 0)"),
    ("quick_gelu", "k forgotten", "(1 + _K * xs * (1 - ss))", "(1 + xs * (1 - ss))"),
    ("quick_gelu", "only the gate", "ss * (1 + _K * xs * (1 - ss))", "ss"),
    ("silu", "only the gate", "ss * (1 + xs * (1 - ss))", "ss"),
    ("silu", "sigma' is not sigma²", "(1 + xs * (1 - ss))", "(1 + xs * ss)"),
    ("tanh", "no square", "(1 - y * y)", "(1 - y)"),
    ("tanh", "sign", "(1 - y * y)", "(1 + y * y)"),
    ("readout_attention", "the readers' own part of dx is forgotten", "    dx[:, :read] += dx_read  # (5)\n", ""),
    ("readout_attention", "the readers' part goes to the last tokens", "dx[:, :read] +=", "dx[:, -read:] +="),
    ("readout_attention", "k and v swapped",
     "[merge_heads(dk), merge_heads(dv)]", "[merge_heads(dv), merge_heads(dk)]"),
    ("readout_attention", "the k norm is skipped", "dk, dk_norm = optional", "_, dk_norm = optional"),
    ("readout_attention", "dropout's mask forgotten", "dy = dropout.backward(dy, c_drop)", "pass"),
    ("mlp", "the activation is skipped", "    dx = act.backward(dx, c_act)  # (2)\n", ""),
    ("mlp", "the inner dropout is skipped", "    dx = dropout.backward(dx, c_drop1)\n", ""),
    ("mlp", "the outer dropout is skipped", "dx = dropout.backward(dy, c_drop2)", "dx = dy"),
    ("swiglu", "gate and value swapped", "[dgate, dvalue]", "[dvalue, dgate]"),
    ("swiglu", "the gate's activation is skipped", "act.backward(dx * value, c_act)", "dx * value"),
    ("swiglu", "value without the gate", "dvalue = dx * gate", "dvalue = dx * 1.0"),
    ("swiglu", "gate without the value", "act.backward(dx * value, c_act)", "act.backward(dx, c_act)"),
    ("dropout", "no 1/keep", "dx: Array = dy * mask", "dx: Array = dy * (mask > 0)"),
    ("dropout", "no mask", "dx: Array = dy * mask", "dx: Array = dy * mask.max()"),
    ("drop_path", "no 1/keep", "dx: Array = dy * mask", "dx: Array = dy * (mask > 0)"),
    ("drop_path", "no mask", "dx: Array = dy * mask", "dx: Array = dy * mask.max()"),
    ("drop_path", "the samples in the wrong order",
     "dx: Array = dy * mask", "dx: Array = dy * np.roll(mask, 1, axis=0)"),
    ("layer_scale", "gamma forgotten", 'return dy * params["gamma"]', "return dy * 1.0"),
    ("layer_scale", "gamma's gradient without x",
     'np.einsum("ni,ni->i", dy.reshape(-1, D), x.reshape(-1, D))', "dy.reshape(-1, D).sum(axis=0)"),
    ("layer_scale", "not summed over the batch",
     "dy.reshape(-1, D), x.reshape(-1, D)", "dy[0].reshape(-1, D), x[0].reshape(-1, D)"),
    ("block", "no residual around the mlp", "dx = dy + dh  # (1)", "dx = dh  # (1)"),
    ("block", "no residual around attention", "dx = dx + dh  # (3)", "dx = dh  # (3)"),
    ("block", "attention gets dy instead of dx'", "drop_path.backward(dx, c_path1)", "drop_path.backward(dy, c_path1)"),
    ("block", "the norm is skipped", 'dh, grads["norm2"] = layernorm', '_, grads["norm2"] = layernorm'),
    ("block", "layer scale is skipped", 'dh, grads["ls1"] = optional', '_, grads["ls1"] = optional'),
    ("block", "norms swapped", "layernorm.backward(dh, c_norm2)", "layernorm.backward(dh, c_norm1)"),
    ("encoder", "the blocks in the wrong order", "in reversed(list(enumerate(caches)))", "in enumerate(caches)"),
    ("encoder", "gradients of the blocks in the wrong order", "insert(0, dblock)", "append(dblock)"),
    ("post_norm_block", "no residual around the mlp", "dx = ds + dh  # (1)", "dx = dh  # (1)"),
    ("post_norm_block", "no residual around attention", "dx = dt + dh  # (3)", "dx = dh  # (3)"),
    ("post_norm_block", "the residual passes the norm by", "dx = dt + dh  # (3)", "dx = ds + dh  # (3)"),
    ("post_norm_block", "drop path is skipped", "dh = drop_path.backward(ds, c_path2)", "dh = ds"),
    ("readout_block", "no residual around the mlp", "dy = dy + dh  # (1)", "dy = dh  # (1)"),
    ("readout_block", "no residual around attention", "    dx[:, : config.read] += dy  # (3)\n", ""),
    ("readout_block", "every token gets the residual", "dx[:, : config.read] += dy", "dx += dy"),
    ("readout_block", "drop path is skipped", "dh = drop_path.backward(dy, c_path1)", "dh = dy"),
    ("token_pool", "every token", "dx[:, 0] = dy", "dx[:] = dy[:, None]"),
    ("token_pool", "the last token", "dx[:, 0] = dy", "dx[:, -1] = dy"),
    ("mean_pool", "no 1/N", "dy[:, None] / (tokens - first)", "dy[:, None]"),
    ("mean_pool", "the prefix tokens counted", "(tokens - first)", "tokens"),
    ("mean_pool", "the prefix tokens get a share", "dx[:, first:] = dy", "dx[:] = dy"),
    ("token_and_mean_pool", "the halves exchanged", "dtoken, dmean = np", "dmean, dtoken = np"),
    ("token_and_mean_pool", "the token forgotten", "token_pool.backward(dtoken, c_token) + mean_pool", "mean_pool"),
    ("attention_pool", "no residual", "dz = dz + dh  # (1)", "dz = dh  # (1)"),
    ("attention_pool", "the latent's gradient not summed",
     "merge_heads(dq).sum(axis=0, keepdims=True)", "merge_heads(dq)[:1]"),
    ("attention_pool", "keys and values swapped",
     "[merge_heads(dk), merge_heads(dv)]", "[merge_heads(dv), merge_heads(dk)]"),
    ("attention_pool", "the patches' gradient shifted", "dx[:, first:], grads", "dx[:, : shape[1] - first], grads"),
    ("pre_logits", "tanh is skipped", "dx = tanh.backward(dy, c_tanh)", "dx = dy"),
    ("pre_logits", "tanh' of dy", "dx = tanh.backward(dy, c_tanh)", "dx = dy * (1 - dy * dy)"),
    ("cross_entropy", "divided by B twice", "* factor)[:, None]", "* factor / len(p))[:, None]"),
    ("cross_entropy", "times B", "* factor)[:, None]", "* factor * len(p))[:, None]"),
    ("cross_entropy", "sample weights forgotten", "* factor)[:, None]", "* (0 * factor + factor.mean()))[:, None]"),
    ("cross_entropy", "S taken for 1", "p * t.sum(axis=-1, keepdims=True)", "p * 1.0"),
    ("cross_entropy", "no target", "    dlogits -= t  # (2)\n", ""),
    ("cross_entropy", "upstream forgotten", "np.asarray(dloss, p.dtype) * factor", "factor"),
    ("mse", "no factor 2", "(2 / difference.shape[-1])", "(1 / difference.shape[-1])"),
    ("mse", "mask forgotten", "dloss, difference.dtype) * share", "dloss, difference.dtype) * share.mean()"),
    ("mse", "not divided by D", "* (2 / difference.shape[-1])", "* 2"),
    ("mse", "sign", "dprediction: Array = difference *", "dprediction: Array = -difference *"),
    ("random_masking", "the gradient goes to the first patches",
     "dx[np.arange(len(dy))[:, None], first + visible] = dy[:, first:]",
     "dx[:, first : dy.shape[1]] = dy[:, first:]"),
    ("random_masking", "the prefix tokens are taken for patches", "first + visible] = dy", "visible] = dy"),
    ("random_masking", "the prefix tokens get nothing", "    dx[:, :first] = dy[:, :first]  # (4)\n", ""),
    ("mask_tokens", "restored instead of shuffled",
     "dz[np.arange(len(dy))[:, None], restore] = dy[:, first:]",
     "dz[...] = dy[:, first:][np.arange(len(dy))[:, None], restore]"),
    ("mask_tokens", "the visible patches counted too", "dz[:, K:].sum", "dz.sum"),
    ("mask_tokens", "not summed over the batch",
     "dz[:, K:].sum(axis=(0, 1), keepdims=True)", "dz[:1, K:].sum(axis=1, keepdims=True)"),
    ("masked_patch_loss", "the whole batch's denominator forgotten", "dloss * share, c_mse", "dloss, c_mse"),
    ("masked_patch_loss", "divided where it multiplies", "dloss * share", "dloss / share"),
    ("kl_divergence", "sign", "dlogits: Array = p - q", "dlogits: Array = q - p"),
    ("kl_divergence", "temperature forgotten", "dlogits *= temperature * factor", "dlogits *= factor"),
    ("kl_divergence", "temperature squared", "dlogits *= temperature * factor", "dlogits *= temperature**2 * factor"),
    ("kl_divergence", "upstream forgotten", "    dlogits *= np.asarray(dloss, p.dtype)[..., None]  # (3)\n", ""),
    ("patch_dropout", "scaled like dropout",
     "random_masking.backward(dy, c_masking)", "random_masking.backward(2 * dy, c_masking)"),
    ("patch_dropout", "one row further", "random_masking.backward(dy, c_masking)",
     "np.roll(random_masking.backward(dy, c_masking), 1, axis=1)"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "old", "new"), [pytest.param(name, old, new, id=f"{name}: {what}") for name, what, old, new in FAULTS]
)
def test_a_fault_in_the_source_is_noticed(name, old, new):
    broken = catalogue.cases(name, of=mutant(name, (old, new)))
    assert any(not check(name, case).ok for case in broken)


def test_every_layer_has_at_least_two_faults():
    assert all(sum(name == fault[0] for fault in FAULTS) >= 2 for name in NAMES if name not in MODELS)


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
    assert not check("mae", catalogue.cases("mae", of=mutant("mae", (old, new)))[i]).ok


@pytest.mark.slow
@pytest.mark.parametrize(("i", "old", "new"), [pytest.param(i, old, new, id=what) for what, i, old, new in DEIT_FAULTS])
def test_a_fault_in_deit_is_noticed(i, old, new):
    assert not check("deit", catalogue.cases("deit", of=mutant("deit", (old, new)))[i]).ok


@pytest.mark.parametrize(("i", "old", "new"), [pytest.param(i, old, new, id=what) for what, i, old, new in VIT_FAULTS])
def test_a_fault_in_the_model_is_noticed(i, old, new):
    assert not check("vit", catalogue.cases("vit", of=mutant("vit", (old, new)))[i]).ok
