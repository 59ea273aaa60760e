"""Parameter groups against timm's rules, and steps by groups against steps of each array alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from numpy_vit import tree
from numpy_vit.training import adam, adamw, groups, sgd

WIDTH, DEPTH = 4, 3


def model(dtype=np.float64):
    """A tree with every kind of name, values random."""
    rng = np.random.default_rng(5)

    def draw(*shape):
        return rng.standard_normal(shape).astype(dtype)

    def dense(out, width=WIDTH):
        return {"weight": draw(out, width), "bias": draw(out)}

    def norm():
        return {"weight": draw(WIDTH), "bias": draw(WIDTH)}

    return {
        "cls_token": draw(1, 1, WIDTH),
        "reg_token": draw(1, 2, WIDTH),
        "pos_embed": draw(1, 9, WIDTH),
        "dist_token": draw(1, 1, WIDTH),
        "mask_token": draw(1, 1, WIDTH),
        "patch_embed": {"proj": {"weight": draw(WIDTH, 3, 2, 2), "bias": draw(WIDTH)}},
        "norm_pre": norm(),
        "blocks": [
            {
                "norm1": norm(),
                "attn": {"qkv": dense(3 * WIDTH)},
                "ls1": {"gamma": draw(WIDTH)},
                "mlp": {"fc1": dense(6)},
            }
            for _ in range(DEPTH)
        ],
        "norm": norm(),
        "fc_norm": norm(),
        "attn_pool": {"latent": draw(1, 1, WIDTH), "q": dense(WIDTH)},
        "pre_logits": {"fc": dense(WIDTH)},
        "head": dense(5),
    }


DECAYING = {
    "patch_embed.proj.weight",
    *(f"blocks.{i}.{name}.weight" for i in range(DEPTH) for name in ("attn.qkv", "mlp.fc1")),
    "attn_pool.q.weight",
    "pre_logits.fc.weight",
    "head.weight",
}
STEM = {"cls_token", "reg_token", "pos_embed", "dist_token", "mask_token", "patch_embed", "norm_pre"}


def keys_of(order, flat, group):
    """The keys whose arrays lie in the group's slice of the packed buffer."""
    found, start = [], 0
    for key in order:
        stop = start + flat[key].size
        if group.start <= start and stop <= group.stop:
            found.append(key)
        start = stop
    return found


def expected_scale(key, decay):
    if key.split(".")[0] in STEM:
        return decay ** (DEPTH + 1)
    if key.startswith("blocks."):
        return decay ** (DEPTH - int(key.split(".")[1]))
    return 1.0


def test_two_groups_without_layer_decay():
    params = model()
    order, parts = groups.parameter_groups(params, 0.05)
    flat = tree.flatten(params)
    assert sorted(order) == sorted(flat)
    assert [(part.name, part.weight_decay, part.lr_scale) for part in parts] == [
        ("decay", 0.05, 1.0),
        ("no_decay", 0.0, 1.0),
    ]
    assert set(keys_of(order, flat, parts[0])) == DECAYING
    assert set(keys_of(order, flat, parts[1])) == set(flat) - DECAYING


@pytest.mark.parametrize("depth", [None, DEPTH])
def test_layer_decay(depth):
    params = model()
    order, parts = groups.parameter_groups(params, 0.05, layer_decay=0.65, depth=depth)
    flat = tree.flatten(params)
    seen = set()
    for part in parts:
        keys = keys_of(order, flat, part)
        assert sum(flat[key].size for key in keys) == part.stop - part.start > 0
        for key in keys:
            np.testing.assert_allclose(part.lr_scale, expected_scale(key, 0.65), rtol=1e-15)
            assert part.weight_decay == (0.05 if key in DECAYING else 0.0)
        seen |= set(keys)
    assert seen == set(flat)
    assert len({part.name for part in parts}) == len(parts) == 2 * (DEPTH + 2)
    assert [part.start for part in parts] == [0, *(part.stop for part in parts[:-1])]
    assert parts[-1].stop == tree.count(params)


def test_slices_are_those_of_the_packed_buffer():
    params = model()
    order, parts = groups.parameter_groups(params, 0.05, layer_decay=0.5)
    buffer, packed = tree.pack(params, order)
    flat = tree.flatten(packed)
    for part in parts:
        joined = np.concatenate([flat[key].ravel() for key in keys_of(order, flat, part)])
        np.testing.assert_array_equal(buffer[part.start : part.stop], joined)


def test_names_inside_a_part_of_a_model():
    array = np.zeros((1, 1, 4))
    assert not groups.decays("encoder.cls_token", array)
    assert groups.decays("my_cls_token", array)
    assert groups.decays("latent", array)
    assert not groups.decays("logit_scale", np.zeros(()))


@pytest.mark.parametrize("optimizer, hyper", [(sgd, {"momentum": 0.9}), (adam, {}), (adamw, {"eps": 1e-6})])
def test_apply_is_each_array_alone(optimizer, hyper):
    rng = np.random.default_rng(6)
    params = model()
    order, parts = groups.parameter_groups(params, 0.3, layer_decay=0.7)
    buffer, packed = tree.pack(params, order)
    state = optimizer.init(buffer)
    alone = {key: array.ravel().copy() for key, array in tree.flatten(params).items()}
    states = {key: optimizer.init(array) for key, array in alone.items()}
    for step in range(4):
        grads = {key: rng.standard_normal(array.size) for key, array in alone.items()}
        flat_grads = np.concatenate([grads[key] for key in order])
        groups.apply(optimizer.update, buffer, flat_grads, state, parts, 0.1, **hyper)
        for key, array in alone.items():
            decay = 0.3 if key in DECAYING else 0.0
            lr = 0.1 * expected_scale(key, 0.7)
            optimizer.update(array, grads[key], states[key], lr, weight_decay=decay, **hyper)
        assert state["step"] == step + 1 and state["step"].shape == ()
    for key, array in tree.flatten(packed).items():
        np.testing.assert_allclose(array.ravel(), alone[key], rtol=1e-13, atol=1e-15)


def test_one_group_is_the_plain_update():
    rng = np.random.default_rng(7)
    params, grads = rng.standard_normal(9), rng.standard_normal(9)
    plain, grouped = params.copy(), params.copy()
    adamw.update(plain, grads, adamw.init(plain), 0.1, weight_decay=0.2)
    groups.apply(adamw.update, grouped, grads, adamw.init(grouped), [groups.Group("all", 0, 9, 0.2, 1.0)], 0.1)
    np.testing.assert_array_equal(grouped, plain)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize(
    "optimizer, hyper", [(sgd, {"momentum": 0.9, "nesterov": True}), (adam, {"beta1": 0.8}), (adamw, {"eps": 1e-6})]
)
def test_pieces_and_workers_leave_the_bits_of_one_call(optimizer, hyper, workers, dtype, monkeypatch):
    monkeypatch.setattr(groups, "_PIECE", 7)
    rng = np.random.default_rng(8)
    whole = rng.standard_normal(101).astype(dtype)
    parts = [groups.Group("decay", 0, 59, 0.2, 1.0), groups.Group("few", 59, 62, 0.0, 0.5)]
    parts.append(groups.Group("no_decay", 62, 101, 0.0, 1.0))
    pieces = whole.copy()
    alone = {part.name: optimizer.init(whole[part.start : part.stop]) for part in parts}
    state = optimizer.init(pieces)
    for step in range(3):
        grads = rng.standard_normal(101).astype(dtype)
        for part in parts:
            own = slice(part.start, part.stop)
            lr = 0.1 * part.lr_scale
            optimizer.update(whole[own], grads[own], alone[part.name], lr, weight_decay=part.weight_decay, **hyper)
        groups.apply(optimizer.update, pieces, grads, state, parts, 0.1, workers, **hyper)
        assert state["step"] == step + 1
    assert pieces.tobytes() == whole.tobytes()
    for name, array in state.items():
        if name != "step":
            assert array.tobytes() == np.concatenate([alone[part.name][name] for part in parts]).tobytes()


def test_a_buffer_of_several_pieces_is_cut(monkeypatch):
    monkeypatch.setattr(groups, "_PIECE", 4)
    sizes, params = [], np.ones(10)

    def update(params, grads, state, lr, weight_decay):
        sizes.append(params.size)
        sgd.update(params, grads, state, lr, weight_decay=weight_decay)

    state = sgd.init(params)
    groups.apply(update, params, np.ones(10), state, [groups.Group("all", 0, 10, 0.0, 1.0)], 0.1)
    assert sizes == [4, 4, 2]
    np.testing.assert_allclose(params, 0.9, rtol=1e-15)


@pytest.mark.parametrize("fault", ["hole", "overlap", "short", "none"])
def test_groups_must_tile(fault):
    left, right = groups.Group("a", 0, 4, 0.0, 1.0), groups.Group("b", 4, 9, 0.0, 1.0)
    faulty = {
        "hole": [left, replace(right, start=5)],
        "overlap": [left, replace(right, start=3)],
        "short": [left, replace(right, stop=8)],
        "none": [],
    }[fault]
    params = np.ones(9)
    state = sgd.init(params)
    with pytest.raises(ValueError, match="do not tile 9 parameters"):
        groups.apply(sgd.update, params, np.ones(9), state, faulty, 0.1)
    assert state["step"] == 0 and (params == 1.0).all()


def test_wrong_arguments():
    with pytest.raises(ValueError, match="weight_decay is -1"):
        groups.parameter_groups(model(), -1)
    with pytest.raises(ValueError, match=r"layer_decay is 1\.5"):
        groups.parameter_groups(model(), 0.1, layer_decay=1.5)
    with pytest.raises(ValueError, match="in block 2, the depth is 2"):
        groups.parameter_groups(model(), 0.1, layer_decay=0.5, depth=2)
    with pytest.raises(ValueError, match="there are none"):
        groups.parameter_groups({"head": {"weight": np.zeros((2, 2))}}, 0.1, layer_decay=0.5)


@pytest.mark.framework
def test_timm():
    timm = pytest.importorskip("timm")
    optim = pytest.importorskip("timm.optim")
    net = timm.create_model("deit_tiny_distilled_patch16_224", depth=DEPTH, num_classes=5)
    named = dict(net.named_parameters())
    key_of = {id(parameter): key for key, parameter in named.items()}
    theirs = {
        key_of[id(parameter)]: (group["weight_decay"], group["lr_scale"])
        for group in optim.param_groups_layer_decay(net, 0.05, net.no_weight_decay(), layer_decay=0.65)
        for parameter in group["params"]
    }
    params = tree.unflatten({key: parameter.detach().numpy() for key, parameter in named.items()})
    order, parts = groups.parameter_groups(params, 0.05, layer_decay=0.65)
    flat = tree.flatten(params)
    ours = {key: (part.weight_decay, part.lr_scale) for part in parts for key in keys_of(order, flat, part)}
    assert ours.keys() == theirs.keys()
    for key, (decay, scale) in ours.items():
        their_decay, their_scale = theirs[key]
        assert decay == their_decay, key
        if key.startswith("norm."):  # timm counts the final norm to the last block, BEiT and MAE do not
            their_scale /= 0.65
        np.testing.assert_allclose(scale, their_scale, rtol=1e-14, err_msg=key)
