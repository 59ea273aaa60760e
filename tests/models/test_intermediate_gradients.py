"""What backward records and the attention's gradients, beside timm with retained gradients, in float64."""

from __future__ import annotations

import numpy as np
import pytest

from numpy_vit import tree
from numpy_vit.models import vit

torch = pytest.importorskip("torch")
timm_vit = pytest.importorskip("timm.models.vision_transformer")
torch.set_num_threads(1)

pytestmark = pytest.mark.framework

CONFIG = vit.Config(
    image_size=(12, 25), patch_size=(4, 5), in_chans=2, num_classes=7, embed_dim=12, depth=3, num_heads=3,
    hidden_dim=18, reg_tokens=2, init_values=0.1,
)  # fmt: skip
THEIR_SIZES = {
    "img_size": (12, 25), "patch_size": (4, 5), "in_chans": 2, "num_classes": 7, "embed_dim": 12, "depth": 3,
    "num_heads": 3, "mlp_ratio": 1.5, "reg_tokens": 2, "init_values": 0.1,
}  # fmt: skip


def test_gradients_of_intermediates_and_of_attention_weights():
    rng = np.random.default_rng(0)
    params = tree.map(lambda leaf: leaf + 0.3 * rng.standard_normal(leaf.shape), vit.init(CONFIG, rng, np.float64))
    images, dlogits = rng.standard_normal((4, 2, 12, 25)), rng.standard_normal((4, 7))
    _, cache = vit.forward(params, images, CONFIG, record={})
    record = {}
    vit.backward(dlogits, cache, record=record)
    weights, gradients = vit.attention_weights(cache), vit.attention_gradients(cache, record)

    model = timm_vit.VisionTransformer(**THEIR_SIZES).double().eval()
    model.load_state_dict({key: torch.tensor(leaf) for key, leaf in tree.flatten(params).items()}, strict=True)
    kept = {}

    def keep(name):
        def hook(module, inputs, output):
            output.retain_grad()
            kept[name] = output

        return hook

    for i, block in enumerate(model.blocks):
        block.attn.fused_attn = False
        for part in ("", ".attn", ".mlp", ".attn.attn_drop"):
            name = f"blocks.{i}{part}"
            model.get_submodule(name).register_forward_hook(keep(name))
    model(torch.tensor(images)).backward(torch.tensor(dlogits))

    assert set(record) == {f"blocks.{i}{part}" for i in range(3) for part in ("", ".attn", ".mlp")}
    for name, ours in record.items():
        theirs = kept[name].grad.numpy()
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-11 * abs(theirs).max(), err_msg=name)
    for i in range(3):
        theirs = kept[f"blocks.{i}.attn.attn_drop"]
        np.testing.assert_allclose(weights[i], theirs.detach().numpy(), rtol=1e-9, atol=1e-12)
        slope = theirs.grad.numpy()
        np.testing.assert_allclose(gradients[i], slope, rtol=1e-9, atol=1e-11 * abs(slope).max())
        assert abs(slope).max() > 1e-6
