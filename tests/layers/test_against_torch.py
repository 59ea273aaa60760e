"""Every layer against PyTorch's autograd and timm's modules: outputs, input gradients, parameter gradients.

All in float64, with random weights, norms, biases and upstream gradients, and sizes that differ from each other.
Where the framework has a module, our flattened parameters are its state dict, loaded strictly.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest

from numpy_vit import tree
from numpy_vit.layers import (
    attention,
    attention_pool,
    block,
    cross_entropy,
    dot_product_attention,
    drop_path,
    dropout,
    gelu,
    gelu_tanh,
    layer_scale,
    layernorm,
    linear,
    mlp,
    mse,
    patch_embed,
    post_norm_block,
    quick_gelu,
    silu,
    softmax,
    swiglu,
    tanh,
)

torch = pytest.importorskip("torch")
F = torch.nn.functional
torch.set_num_threads(1)

pytestmark = pytest.mark.framework

B, N, D, HEADS, HIDDEN = 5, 7, 12, 3, 18
VALUE, GRADIENT = 1e-12, 1e-10  # tolerances, absolute plus relative

# timm's name -> the name in nn.MultiheadAttention and nn.TransformerEncoderLayer
MHA_NAMES = {
    "qkv.weight": "in_proj_weight", "qkv.bias": "in_proj_bias",
    "proj.weight": "out_proj.weight", "proj.bias": "out_proj.bias",
}  # fmt: skip
ENCODER_NAMES = {
    **{f"attn.{ours}": f"self_attn.{theirs}" for ours, theirs in MHA_NAMES.items()},
    **{f"mlp.fc{i}.{kind}": f"linear{i}.{kind}" for i in (1, 2) for kind in ("weight", "bias")},
}


@pytest.fixture
def timm():
    return pytest.importorskip("timm.layers")


@pytest.fixture
def timm_block():
    return pytest.importorskip("timm.models.vision_transformer").Block


def tensor(array, grad=False):
    return torch.tensor(array, requires_grad=grad)


def same(ours, theirs, tolerance, name):
    theirs = theirs.detach().numpy()
    assert ours.dtype == theirs.dtype and ours.shape == theirs.shape, name
    assert np.any(theirs), f"{name}: a reference of zeros proves nothing"
    np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance, err_msg=name)


def randomised(params, rng):
    return tree.map(lambda leaf: 0.6 * rng.standard_normal(leaf.shape), params)


def load(module, params, names=None):
    """Give a framework's module our parameters; strictly, so the names and shapes have to be its own."""
    state = {(names or {}).get(key, key): tensor(leaf) for key, leaf in tree.flatten(params).items()}
    module.double().load_state_dict(state, strict=True)
    return module


def check(module, params, x, forward, backward, rng, names=None):
    """Compare y, dx and every parameter's gradient; `module` is loaded with `params` first."""
    load(module, params, names)
    x_theirs = tensor(x, grad=True)
    y_theirs = module(x_theirs)
    y, cache = forward(params, x)
    same(y, y_theirs, VALUE, "y")

    dy = rng.standard_normal(y.shape)
    dx, grads = backward(dy, cache)
    keys, leaves = zip(*module.named_parameters(), strict=True)
    dx_theirs, *grads_theirs = torch.autograd.grad(y_theirs, [x_theirs, *leaves], tensor(dy))
    same(dx, dx_theirs, GRADIENT, "dx")
    flat = {(names or {}).get(key, key): grad for key, grad in tree.flatten(grads).items()}
    assert flat.keys() == set(keys)
    for key, grad in zip(keys, grads_theirs, strict=True):
        same(flat[key], grad, GRADIENT, key)


def check_function(ours, theirs, x, rng):
    """Compare a layer without parameters: y and dx."""
    x_theirs = tensor(x, grad=True)
    y_theirs = theirs(x_theirs)
    y, cache = ours.forward(x)
    same(y, y_theirs, VALUE, "y")
    dy = rng.standard_normal(y.shape)
    (dx,) = torch.autograd.grad(y_theirs, [x_theirs], tensor(dy))
    same(ours.backward(dy, cache), dx, GRADIENT, "dx")


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("lead", [(B,), (B, N), (2, 3, 4)])
def test_linear(lead, bias):
    rng = np.random.default_rng(0)
    params = randomised(linear.init(D, HIDDEN, rng, bias), rng)
    module = torch.nn.Linear(D, HIDDEN, bias=bias)
    check(module, params, rng.standard_normal((*lead, D)), linear.forward, linear.backward, rng)


@pytest.mark.parametrize("bias", [True, False])
def test_patch_embed_is_a_strided_convolution(bias):
    rng = np.random.default_rng(1)
    patch = (3, 4)
    params = randomised(patch_embed.init(2, D, patch, rng, bias), rng)
    module = torch.nn.Sequential()
    module.add_module("proj", torch.nn.Conv2d(2, D, patch, stride=patch, bias=bias))
    module.add_module("flat", torch.nn.Flatten(2))
    module.forward = lambda images: module.flat(module.proj(images)).transpose(1, 2)
    images = rng.standard_normal((B, 2, 6, 20))
    check(module, params, images, patch_embed.forward, patch_embed.backward, rng)


@pytest.mark.parametrize("eps", [1e-6, 1e-5])
def test_patch_embed_with_norm(timm, eps):
    rng = np.random.default_rng(2)
    params = randomised(patch_embed.init(2, D, (3, 4), rng, norm=True), rng)
    norm = partial(torch.nn.LayerNorm, eps=eps)
    module = timm.PatchEmbed((6, 20), (3, 4), in_chans=2, embed_dim=D, norm_layer=norm)
    images = 0.01 * rng.standard_normal((B, 2, 6, 20))
    params["proj"]["bias"] *= 0.01  # small tokens, so that eps matters
    check(module, params, images, partial(patch_embed.forward, eps=eps), patch_embed.backward, rng)


@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("eps", [1e-6, 1e-5])
def test_layernorm(eps, scale):
    rng = np.random.default_rng(3)
    params = randomised(layernorm.init(D), rng)
    x = scale * (rng.standard_normal((B, N, D)) + 0.5)
    check(torch.nn.LayerNorm(D, eps=eps), params, x, partial(layernorm.forward, eps=eps), layernorm.backward, rng)


def test_layer_scale(timm):
    rng = np.random.default_rng(4)
    params = randomised(layer_scale.init(D), rng)
    check(timm.LayerScale(D), params, rng.standard_normal((B, N, D)), layer_scale.forward, layer_scale.backward, rng)


@pytest.mark.parametrize("scale", [1.0, 1e4])
@pytest.mark.parametrize("shape", [(B, N), (B, HEADS, N, D)])
def test_softmax(shape, scale):
    rng = np.random.default_rng(5)
    x = scale * rng.standard_normal(shape)
    x[..., 1] = x[..., 0] = x.max(axis=-1)  # a tie at the top: without one, logits of 1e4 have no gradient at all
    check_function(softmax, partial(F.softmax, dim=-1), x, rng)


ACTIVATIONS = {
    "gelu": (gelu, F.gelu),
    "gelu_tanh": (gelu_tanh, partial(F.gelu, approximate="tanh")),
    "quick_gelu": (quick_gelu, lambda x: x * torch.sigmoid(1.702 * x)),
    "silu": (silu, F.silu),
    "tanh": (tanh, torch.tanh),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation(name):
    rng = np.random.default_rng(6)
    ours, theirs = ACTIVATIONS[name]
    check_function(ours, theirs, 3 * rng.standard_normal((B, N, 1001)), rng)  # more entries than one chunk
    extremes = np.array([[-1e6, -50.0, -37.5, -8.0, -1e-9, -0.0], [0.0, 1e-9, 8.0, 37.5, 50.0, 1e6]])
    check_function(ours, theirs, extremes, rng)


def test_gelu_in_float32_is_nearer_to_the_truth_than_5e_7():
    x = np.linspace(-8, 8, 400_001, dtype=np.float32)
    y, cache = gelu.forward(x)
    slope = gelu.backward(np.ones_like(x), cache)
    assert y.dtype == slope.dtype == np.float32
    exact = x.astype(np.float64)
    normal = np.array([0.5 * math.erfc(-v / math.sqrt(2)) for v in exact.tolist()])
    assert np.abs(y - exact * normal).max() < 5e-7
    density = np.exp(-0.5 * exact**2) / math.sqrt(2 * math.pi)
    assert np.abs(slope - (normal + exact * density)).max() < 2.6e-7


@pytest.mark.parametrize(
    "shape",
    [
        None, (B, HEADS, N, 4), (1, HEADS, N, 4), (HEADS, N, 4), (HEADS, 1, 4), (B, 1, 1, 4), (B, 1, N, 1), (N, 4),
        (1, 4), (4,), (B, HEADS, 1, 1), (),
    ],
)  # fmt: skip
def test_dot_product_attention_and_its_bias(shape):
    rng = np.random.default_rng(7)
    q, k, v = (rng.standard_normal((B, HEADS, tokens, D)) for tokens in (N, 4, 4))  # 7 queries, 4 keys
    leaves = [tensor(array, grad=True) for array in (q, k, v)]
    bias, mask = None, None
    if shape is not None:
        bias = 2 * np.asarray(rng.standard_normal(shape))
        leaves.append(tensor(bias, grad=True))
        mask = leaves[-1].expand(B, HEADS, N, 4)
    o_theirs = F.scaled_dot_product_attention(*leaves[:3], attn_mask=mask)
    o, cache = dot_product_attention.forward(q, k, v, bias)
    same(o, o_theirs, VALUE, "o")
    do = rng.standard_normal(o.shape)
    grads = dot_product_attention.backward(do, cache)
    assert len(grads) == 4 and (grads[3] is None) == (bias is None)
    theirs = torch.autograd.grad(o_theirs, leaves, tensor(do))
    for name, ours, reference in zip(("dq", "dk", "dv", "dbias"), grads, theirs, strict=False):
        if name == "dbias" and 4 not in (shape or ()):
            # one number for all keys of a query moves no weight: zero, up to rounding, in both
            np.testing.assert_allclose(ours, reference.numpy(), atol=GRADIENT, err_msg=name)
            np.testing.assert_allclose(ours, 0, atol=GRADIENT, err_msg=name)
            assert ours.shape == shape
        else:
            same(ours, reference, GRADIENT, name)


def test_attention_where_a_bias_of_minus_infinity_hides_keys():
    rng = np.random.default_rng(8)
    q, k, v = (rng.standard_normal((B, HEADS, N, D)) for _ in range(3))
    bias = np.where(np.tri(N, dtype=bool), 0.0, -np.inf)
    leaves = [tensor(array, grad=True) for array in (q, k, v)]
    o_theirs = F.scaled_dot_product_attention(*leaves, attn_mask=tensor(bias))
    o, cache = dot_product_attention.forward(q, k, v, bias)
    same(o, o_theirs, VALUE, "o")
    do = rng.standard_normal(o.shape)
    grads = dot_product_attention.backward(do, cache)[:3]
    for name, ours, theirs in zip("qkv", grads, torch.autograd.grad(o_theirs, leaves, tensor(do)), strict=True):
        same(ours, theirs, GRADIENT, f"d{name}")


@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_attention_against_multihead_attention(scale):
    rng = np.random.default_rng(9)
    params = randomised(attention.init(D, HEADS, rng), rng)
    x, bias, dy = scale * rng.standard_normal((B, N, D)), rng.standard_normal((N, N)), rng.standard_normal((B, N, D))
    module = load(torch.nn.MultiheadAttention(D, HEADS, batch_first=True), params, MHA_NAMES)
    x_theirs, bias_theirs = tensor(x, grad=True), tensor(bias, grad=True)
    y_theirs, weights = module(x_theirs, x_theirs, x_theirs, attn_mask=bias_theirs, average_attn_weights=False)

    y, cache = attention.forward(params, x, HEADS, bias)
    same(y, y_theirs, VALUE * scale, "y")
    same(attention.weights(cache), weights, VALUE * scale, "weights")
    dx, dbias, grads = attention.backward(dy, cache)
    keys, leaves = zip(*module.named_parameters(), strict=True)
    theirs = torch.autograd.grad(y_theirs, [x_theirs, bias_theirs, *leaves], tensor(dy))
    flat = {MHA_NAMES[key]: grad for key, grad in tree.flatten(grads).items()}
    assert flat.keys() == set(keys)
    for name, ours, reference in zip(("dx", "dbias", *keys), (dx, dbias, *map(flat.get, keys)), theirs, strict=True):
        same(ours, reference, GRADIENT * scale, name)
    np.testing.assert_allclose(grads["qkv"]["bias"][D : 2 * D], 0, atol=GRADIENT)  # the keys' bias moves nothing


def attention_forward(params, x, eps=1e-6):
    return attention.forward(params, x, HEADS, eps=eps)


def attention_backward(dy, cache):
    dx, _, grads = attention.backward(dy, cache)
    return dx, grads


@pytest.mark.parametrize("eps", [1e-6, 1e-5])
@pytest.mark.parametrize("qkv_bias", [True, False])
@pytest.mark.parametrize("qk_norm", [True, False])
def test_attention_against_timm(timm, qk_norm, qkv_bias, eps):
    rng = np.random.default_rng(10)
    params = randomised(attention.init(D, HEADS, rng, qkv_bias, qk_norm), rng)
    module = timm.Attention(D, HEADS, qkv_bias=qkv_bias, qk_norm=qk_norm, norm_layer=partial(timm.LayerNorm, eps=eps))
    x = 0.1 * rng.standard_normal((B, N, D))
    check(module, params, x, partial(attention_forward, eps=eps), attention_backward, rng)


@pytest.mark.parametrize("act", ["gelu", "gelu_tanh"])
@pytest.mark.parametrize("first", [0, 2])
def test_attention_pool(timm, first, act):
    rng = np.random.default_rng(11)
    params = randomised(attention_pool.init(D, HIDDEN, rng), rng)
    config = block.Config(HEADS, 1e-5, act=ACTIVATIONS[act][0])
    module = timm.AttentionPoolLatent(
        D, num_heads=HEADS, mlp_ratio=HIDDEN / D, norm_layer=partial(timm.LayerNorm, eps=1e-5),
        act_layer=partial(torch.nn.GELU, approximate="tanh" if act == "gelu_tanh" else "none"),
    )  # fmt: skip
    module.register_forward_pre_hook(lambda module, args: (args[0][:, first:],))
    x = rng.standard_normal((B, first + N, D))
    check(module, params, x, partial(attention_pool.forward, config=config, first=first), attention_pool.backward, rng)


@pytest.mark.parametrize("act", ["gelu", "gelu_tanh", "quick_gelu"])
def test_mlp(timm, act):
    rng = np.random.default_rng(12)
    ours, theirs = ACTIVATIONS[act]
    params = randomised(mlp.init(D, HIDDEN, rng), rng)
    module = timm.Mlp(D, HIDDEN)
    module.act = theirs_as_module(theirs)
    check(module, params, rng.standard_normal((B, N, D)), partial(mlp.forward, act=ours), mlp.backward, rng)


def theirs_as_module(function):
    module = torch.nn.Identity()
    module.forward = function
    return module


def test_swiglu(timm):
    rng = np.random.default_rng(13)
    params = randomised(swiglu.init(D, HIDDEN, rng), rng)
    module = timm.SwiGLUPacked(D, 2 * HIDDEN)
    check(module, params, rng.standard_normal((B, N, D)), swiglu.forward, swiglu.backward, rng)


BLOCKS = {
    "plain": {},
    "layer scale": {"init_values": 0.1},
    "q and k norms": {"qk_norm": True},
    "no qkv bias": {"qkv_bias": False},
    "all": {"init_values": 0.1, "qk_norm": True, "qkv_bias": False},
}


@pytest.mark.parametrize("ffn", ["mlp", "swiglu"])
@pytest.mark.parametrize("eps", [1e-6, 1e-5])
@pytest.mark.parametrize("case", BLOCKS)
def test_block(timm, timm_block, case, eps, ffn):
    rng = np.random.default_rng(14)
    gated = ffn == "swiglu"
    config = block.Config(HEADS, eps, swiglu if gated else mlp, silu if gated else gelu)
    params = randomised(block.init(D, HIDDEN, config, rng, **BLOCKS[case]), rng)
    module = timm_block(
        D, HEADS, mlp_ratio=(2 if gated else 1) * HIDDEN / D, norm_layer=partial(timm.LayerNorm, eps=eps),
        act_layer=torch.nn.SiLU if gated else torch.nn.GELU, mlp_layer=timm.SwiGLUPacked if gated else timm.Mlp,
        **{"qkv_bias": True, **BLOCKS[case]},
    )  # fmt: skip
    x = 0.3 * rng.standard_normal((B, N, D))
    check(module, params, x, partial(block.forward, config=config), block.backward, rng)


@pytest.mark.parametrize("eps", [1e-6, 1e-5])
@pytest.mark.parametrize(("layer", "norm_first"), [(post_norm_block, False), (block, True)])
def test_blocks_against_transformer_encoder_layer(layer, norm_first, eps):
    rng = np.random.default_rng(15)
    config = block.Config(HEADS, eps)
    params = randomised(layer.init(D, HIDDEN, config, rng), rng)
    module = torch.nn.TransformerEncoderLayer(
        D, HEADS, HIDDEN, dropout=0.0, activation="gelu", layer_norm_eps=eps, batch_first=True, norm_first=norm_first
    )
    x = 0.3 * rng.standard_normal((B, N, D))
    check(module, params, x, partial(layer.forward, config=config), layer.backward, rng, ENCODER_NAMES)


def cross_entropy_cases():
    rng = np.random.default_rng(16)
    logits = rng.standard_normal((B, N))
    indices = rng.integers(0, N, B)
    soft = rng.dirichlet(np.ones(N), B)
    for name, targets in {"indices": indices, "soft": soft, "unnormalised": soft + rng.uniform(0, 1, (B, N))}.items():
        for scale in (1.0, 1e4):
            yield pytest.param(scale * logits, targets, id=f"{name}-{scale:g}")


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize(("logits", "targets"), list(cross_entropy_cases()))
def test_cross_entropy(logits, targets, smoothing, reduction):
    rng = np.random.default_rng(17)
    leaf = tensor(logits, grad=True)
    theirs = F.cross_entropy(leaf, tensor(targets), label_smoothing=smoothing, reduction=reduction)
    loss, cache = cross_entropy.forward(logits, targets, smoothing, reduction=reduction)
    same(loss, theirs, VALUE, "loss")
    dloss = rng.standard_normal(loss.shape)
    (dlogits,) = torch.autograd.grad(theirs, [leaf], tensor(np.asarray(dloss)))
    same(cross_entropy.backward(dloss, cache), dlogits, GRADIENT, "dlogits")


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropy_of_weighted_samples(reduction):
    rng = np.random.default_rng(18)
    logits, targets = 3 * rng.standard_normal((B, N)), rng.integers(0, N, B)
    weights = rng.uniform(0, 2, B)
    leaf = tensor(logits, grad=True)
    each = F.cross_entropy(leaf, tensor(targets), label_smoothing=0.2, reduction="none") * tensor(weights)
    theirs = {"mean": each.sum() / weights.sum(), "sum": each.sum(), "none": each}[reduction]
    loss, cache = cross_entropy.forward(logits, targets, 0.2, weights, reduction)
    same(loss, theirs, VALUE, "loss")
    dloss = np.asarray(rng.standard_normal(loss.shape))
    (dlogits,) = torch.autograd.grad(theirs, [leaf], tensor(dloss))
    same(cross_entropy.backward(dloss, cache), dlogits, GRADIENT, "dlogits")


def test_cross_entropy_weights_equal_torch_class_weights():
    # torch's weights belong to classes; its mean divides by the sum of the weights of the samples' classes
    rng = np.random.default_rng(19)
    logits, targets, of_class = rng.standard_normal((B, N)), rng.integers(0, N, B), rng.uniform(0.1, 2, N)
    leaf = tensor(logits, grad=True)
    theirs = F.cross_entropy(leaf, tensor(targets), weight=tensor(of_class))
    loss, cache = cross_entropy.forward(logits, targets, weights=of_class[targets])
    same(loss, theirs, VALUE, "loss")
    same(cross_entropy.backward(1.0, cache), torch.autograd.grad(theirs, [leaf])[0], GRADIENT, "dlogits")


@pytest.mark.parametrize("masked", [False, True])
def test_mse(masked):
    rng = np.random.default_rng(20)
    prediction, target = rng.standard_normal((2, B, N, D))
    mask = (rng.random((B, N)) < 0.6).astype(np.float64) if masked else None
    leaf = tensor(prediction, grad=True)
    if masked:  # forward_loss of MAE's reference code
        per_token = ((leaf - tensor(target)) ** 2).mean(dim=-1)
        theirs = (per_token * tensor(mask)).sum() / tensor(mask).sum()
    else:
        theirs = F.mse_loss(leaf, tensor(target))
    loss, cache = mse.forward(prediction, target, mask)
    same(loss, theirs, VALUE, "loss")
    (reference,) = torch.autograd.grad(theirs, [leaf], tensor(np.float64(0.7)))
    same(mse.backward(0.7, cache), reference, GRADIENT, "dprediction")


class Replay:
    """A generator whose draws are the decisions of a framework: 1 where it kept an entry, 0 where not."""

    def __init__(self):
        self.kept = []

    def listen(self, module, args, output):
        """Remember what a dropout module kept; of drop path, one decision a sample."""
        kept = (output != 0).numpy(force=True)
        self.kept.append(kept if isinstance(module, torch.nn.Dropout) else kept.reshape(len(kept), -1).any(axis=1))

    def random(self, shape, dtype):
        kept = self.kept.pop(0)
        assert kept.shape == (shape if isinstance(shape, tuple) else (shape,))
        return kept.astype(dtype)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("ours", [dropout, drop_path])
def test_dropped_entries_are_zero_and_kept_ones_divided_by_the_keep_probability(timm, ours, rate):
    torch.manual_seed(0)
    rng, replay = np.random.default_rng(21), Replay()
    module = torch.nn.Dropout(rate) if ours is dropout else timm.DropPath(rate)
    module.register_forward_hook(replay.listen)
    x, dy = rng.standard_normal((2, 400, 3, 4))
    leaf = tensor(x, grad=True)
    theirs = module(leaf)
    y, cache = ours.forward(x, rate, replay)
    same(y, theirs, VALUE, "y")
    same(ours.backward(dy, cache), torch.autograd.grad(theirs, [leaf], tensor(dy))[0], GRADIENT, "dx")


@pytest.mark.parametrize("ours", [dropout, drop_path])
@pytest.mark.parametrize("rate", [0.1, 0.7])
def test_dropout_keeps_the_expectation(ours, rate):
    count = 40_000
    y, _ = ours.forward(np.ones((count, 1)), rate, np.random.default_rng(22))
    np.testing.assert_allclose(np.unique(y), [0, 1 / (1 - rate)], rtol=1e-15)
    deviation = math.sqrt(rate / (1 - rate) / count)
    assert abs(y.mean() - 1) < 5 * deviation


def test_block_drops_where_timm_drops(timm, timm_block):
    """With timm's own masks, training mode agrees too: every dropout stands in its place and is scaled as there."""
    torch.manual_seed(1)
    rng, replay = np.random.default_rng(23), Replay()
    config = block.Config(HEADS, attn_drop=0.3, proj_drop=0.2, drop_path=0.4)
    params = randomised(block.init(D, HIDDEN, config, rng, init_values=0.1), rng)
    module = timm_block(
        D, HEADS, HIDDEN / D, qkv_bias=True, attn_drop=0.3, proj_drop=0.2, drop_path=0.4, init_values=0.1
    )
    module.attn.fused_attn = False  # the fused kernel drops weights out of a hook's sight
    for part in module.modules():
        if isinstance(part, (torch.nn.Dropout, timm.DropPath)):
            part.register_forward_hook(replay.listen)
    x = rng.standard_normal((B, N, D))
    check(module, params, x, partial(block.forward, config=config, rng=replay), block.backward, rng)
    assert not replay.kept
