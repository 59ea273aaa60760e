"""Typical mistakes in a backward, each as a piece of the layer's own source and what takes its place."""

from __future__ import annotations

import inspect
from types import ModuleType

from numpy_vit.checks import catalogue
from numpy_vit.checks.exercises import steps

MISTAKES: list[tuple[str, str, str, str]] = [
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
    ("position_table", "mean over the batch", ".sum(axis=0, keepdims=True)", ".mean(axis=0, keepdims=True)"),
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
     "dp = dropout.backward(do[:, :, rows] @ v.swapaxes(-1, -2), c_drop)", "dp = do[:, :, rows] @ v.swapaxes(-1, -2)"),
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
    ("relu", "y itself instead of its slope", "dy * (y > 0)", "dy * y"),
    ("quick_gelu", "k forgotten", "(1 + _K * xs * (1 - ss))", "(1 + xs * (1 - ss))"),
    ("quick_gelu", "only the gate", "ss * (1 + _K * xs * (1 - ss))", "ss"),
    ("quick_gelu", "sigma' is not sigma²", "(1 + _K * xs * (1 - ss))", "(1 + _K * xs * ss)"),
    ("silu", "only the gate", "ss * (1 + xs * (1 - ss))", "ss"),
    ("silu", "sigma' is not sigma²", "(1 + xs * (1 - ss))", "(1 + xs * ss)"),
    ("silu", "sigma' without x", "(1 + xs * (1 - ss))", "(1 + (1 - ss))"),
    ("tanh", "no square", "(1 - y * y)", "(1 - y)"),
    ("tanh", "sign", "(1 - y * y)", "(1 + y * y)"),
    ("tanh", "the slope of the sigmoid", "(1 - y * y)", "(y * (1 - y))"),
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
    ("dropout", "1/keep twice", "dx: Array = dy * mask", "dx: Array = dy * mask * mask.max()"),
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
    ("encoder", "every block gets dy", "block.backward(dx, c_block", "block.backward(dy, c_block"),
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
    ("token_pool", "spread over the tokens", "dx[:, 0] = dy", "dx[:] = dy[:, None] / dx.shape[1]"),
    ("mean_pool", "no 1/N", "dy[:, None] / (tokens - first)", "dy[:, None]"),
    ("mean_pool", "the prefix tokens counted", "(tokens - first)", "tokens"),
    ("mean_pool", "the prefix tokens get a share", "dx[:, first:] = dy", "dx[:] = dy"),
    ("token_and_mean_pool", "the halves exchanged", "dtoken, dmean = np", "dmean, dtoken = np"),
    ("token_and_mean_pool", "the token forgotten", "token_pool.backward(dtoken, c_token) + mean_pool", "mean_pool"),
    ("token_and_mean_pool", "the mean forgotten",
     "return token_pool.backward(dtoken, c_token) + mean_pool.backward(dmean, c_mean)",
     "return token_pool.backward(dtoken, c_token)"),
    ("attention_pool", "no residual", "dz = dz + dh  # (1)", "dz = dh  # (1)"),
    ("attention_pool", "the latent's gradient not summed",
     "merge_heads(dq).sum(axis=0, keepdims=True)", "merge_heads(dq)[:1]"),
    ("attention_pool", "keys and values swapped",
     "[merge_heads(dk), merge_heads(dv)]", "[merge_heads(dv), merge_heads(dk)]"),
    ("attention_pool", "the patches' gradient shifted", "dx[:, first:], grads", "dx[:, : shape[1] - first], grads"),
    ("pre_logits", "tanh is skipped", "dx = tanh.backward(dy, c_tanh)", "dx = dy"),
    ("pre_logits", "tanh' of dy", "dx = tanh.backward(dy, c_tanh)", "dx = dy * (1 - dy * dy)"),
    ("pre_logits", "no square in tanh'", "dx = tanh.backward(dy, c_tanh)", "dx = dy * (1 - c_tanh[0])"),
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
    ("masked_patch_loss", "the whole batch's denominator twice", "dloss * share", "dloss * share * share"),
    ("kl_divergence", "sign", "dlogits: Array = p - q", "dlogits: Array = q - p"),
    ("kl_divergence", "temperature forgotten", "dlogits *= temperature * factor", "dlogits *= factor"),
    ("kl_divergence", "temperature squared", "dlogits *= temperature * factor", "dlogits *= temperature**2 * factor"),
    ("kl_divergence", "upstream forgotten", "    dlogits *= np.asarray(dloss, p.dtype)[..., None]  # (3)\n", ""),
    ("patch_dropout", "scaled like dropout",
     "random_masking.backward(dy, c_masking)", "random_masking.backward(2 * dy, c_masking)"),
    ("patch_dropout", "one row further", "random_masking.backward(dy, c_masking)",
     "np.roll(random_masking.backward(dy, c_masking), 1, axis=1)"),
    ("patch_dropout", "the rows stay in front", "random_masking.backward(dy, c_masking)",
     "np.concatenate([dy, np.zeros_like(dy, shape=(len(dy), c_masking[0][1] - dy.shape[1], dy.shape[2]))], axis=1)"),
]  # fmt: skip

# The step that a mistake breaks, where the marks in the code say several, another, or none.
_STEPS = {
    ("prefix_tokens", "registers start at the class token"): 2,
    ("position_table", "not summed over the batch"): 2,
    ("position_table", "rows of the wrong tokens"): 2,
    ("position_table", "mean over the batch"): 2,
    ("layernorm", "eps forgotten in backward"): 5,
    ("dot_product_attention", "dropout's mask forgotten"): 3,
    ("dot_product_attention", "bias not summed over broadcast axes"): 4,
    ("dot_product_attention", "bias's leading axes averaged"): 4,
    ("attention", "the q norm's gradients are the k norm's"): 3,
    ("swiglu", "the gate's activation is skipped"): 3,
    ("block", "the norm is skipped"): 2,
    ("block", "norms swapped"): 2,
}


def step(name: str, what: str) -> int:
    """Return the step of the derivation that a mistake of the table breaks."""
    if (name, what) in _STEPS:
        return _STEPS[name, what]
    old = next(old for layer, words, old, _ in MISTAKES if (layer, words) == (name, what))
    return min(steps.marked(catalogue.module(name), old))


def with_mistake(name: str, *replacements: tuple[str, str]) -> ModuleType:
    """Return a layer's module, run anew from its source with pieces of text replaced.

    Parameters
    ----------
    name : of a layer or model
    replacements : pairs of a text that occurs once in the source, and what takes its place

    Raises
    ------
    ValueError : a text that does not occur exactly once.
    """
    original = catalogue.module(name)
    source = inspect.getsource(original)
    for old, new in replacements:
        if source.count(old) != 1:
            raise ValueError(f"{name}: {old!r} occurs {source.count(old)} times, not once")
        source = source.replace(old, new)
    module = ModuleType(original.__name__)  # dataclasses look their module up by this name
    module.__file__ = original.__file__
    exec(compile(source, f"{name} with a mistake", "exec"), module.__dict__)
    return module
