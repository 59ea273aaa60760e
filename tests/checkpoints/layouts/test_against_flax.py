"""Google's npz layout against flax itself: a ViT of flax.linen modules, whose parameters bear the names of the files.

The modules are named as in Google's vision_transformer, so that flax chooses keys, shapes and initial values; each of
them counts per class (LayerNorm_0, LayerNorm_1), as in big_vision's files.
"""

from __future__ import annotations

import numpy as np
import pytest

from numpy_vit import tree
from numpy_vit.checkpoints import load

jax = pytest.importorskip("jax")
nn = pytest.importorskip("flax.linen")
traverse_util = pytest.importorskip("flax.traverse_util")
jnp = jax.numpy

pytestmark = pytest.mark.framework

D, HEADS, F, K, PATCH, IMAGE = 12, 3, 20, 7, 4, (16, 16)


class MlpBlock(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.gelu(nn.Dense(F)(x))  # flax's gelu is the tanh form
        return nn.Dense(D)(x)


class EncoderBlock(nn.Module):
    @nn.compact
    def __call__(self, x):
        y = nn.LayerNorm(use_fast_variance=False)(x)
        x = x + nn.MultiHeadDotProductAttention(num_heads=HEADS)(y, y)
        return x + MlpBlock()(nn.LayerNorm(use_fast_variance=False)(x))


class Positions(nn.Module):
    @nn.compact
    def __call__(self, x):
        return x + self.param("pos_embedding", nn.initializers.normal(0.2), (1, *x.shape[1:]))


class Encoder(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = Positions(name="posembed_input")(x)
        for i in range(2):
            x = EncoderBlock(name=f"encoderblock_{i}")(x)
        return nn.LayerNorm(name="encoder_norm", use_fast_variance=False)(x)


class VisionTransformer(nn.Module):
    @nn.compact
    def __call__(self, images):  # (B, Y, X, C)
        x = nn.Conv(D, (PATCH, PATCH), (PATCH, PATCH), padding="VALID", name="embedding")(images)
        x = x.reshape(len(x), -1, D)
        cls = self.param("cls", nn.initializers.normal(0.5), (1, 1, D))
        x = jnp.concatenate([jnp.tile(cls, (len(x), 1, 1)), x], axis=1)
        return nn.Dense(K, name="head")(Encoder(name="Transformer")(x)[:, 0])


@pytest.fixture
def double():
    """Everything in float64, for this test only."""
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


def test_logits_and_all_gradients(double, tmp_path):
    rng = np.random.default_rng(0)
    images, upstream = rng.standard_normal((3, *IMAGE, 3)), rng.standard_normal((3, K))
    model = VisionTransformer()
    shapes = jax.eval_shape(model.init, jax.random.PRNGKey(0), images)["params"]
    params = jax.tree_util.tree_map(lambda leaf: 0.3 * rng.standard_normal(leaf.shape), shapes)
    logits, backward = jax.vjp(lambda p: model.apply({"params": p}, images), params)
    (gradients,) = backward(jnp.asarray(upstream))

    def flat(nested):
        return {"/".join(path): np.asarray(leaf) for path, leaf in traverse_util.flatten_dict(nested).items()}

    np.savez(tmp_path / "flax.npz", **flat(params))
    found = load(tmp_path / "flax.npz", np.float64)
    assert (found.config.num_heads, found.config.act, found.config.norm_eps) == (HEADS, "gelu_tanh", 1e-6)
    ours, cache = found.model.forward(found.params, images.transpose(0, 3, 1, 2), found.config)
    assert np.abs(logits).max() > 0.1
    np.testing.assert_allclose(ours, logits, rtol=1e-10, atol=1e-10)
    _, grads = found.model.backward(upstream, cache)
    theirs = found.layout.unpack(flat(gradients), found.config)
    mine = tree.flatten(grads)
    assert mine.keys() == theirs.keys()
    for key, reference in theirs.items():
        np.testing.assert_allclose(
            mine[key], reference, rtol=1e-9, atol=1e-9 * np.abs(reference).max() + 1e-11, err_msg=key
        )
    packed = found.layout.pack(tree.flatten(found.params), found.config)
    stored = flat(params)
    assert packed.keys() == stored.keys()
    assert all((packed[key] == stored[key]).all() for key in stored)
