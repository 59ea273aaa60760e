"""Twenty steps of training beside PyTorch: the losses of every step and the parameters at the end.

Both models start from the same numbers and see the same batches in float64; timm decides which of its parameters
decay, we decide which of ours.  A wrong scale of a gradient, which Adam hides, shows with SGD.
"""

from __future__ import annotations

import numpy as np
import pytest

from numpy_vit import tree
from numpy_vit.checkpoints import load
from numpy_vit.layers import cross_entropy
from numpy_vit.models import vit
from numpy_vit.training import adamw, groups, sgd

torch = pytest.importorskip("torch")
timm_vit = pytest.importorskip("timm.models.vision_transformer")
timm_optim = pytest.importorskip("timm.optim")
torch.set_num_threads(1)

pytestmark = pytest.mark.framework

STEPS, B, K, DECAY = 20, 8, 7, 0.05
CONFIG = vit.Config(
    image_size=(12, 25), patch_size=(4, 5), in_chans=2, num_classes=K, embed_dim=12, depth=2, num_heads=3,
    hidden_dim=18, reg_tokens=2, init_values=0.1,
)  # fmt: skip
THEIR_SIZES = {
    "img_size": (12, 25), "patch_size": (4, 5), "in_chans": 2, "num_classes": K, "embed_dim": 12, "depth": 2,
    "num_heads": 3, "mlp_ratio": 1.5, "reg_tokens": 2, "init_values": 0.1,
}  # fmt: skip
ADAMW = (adamw, {"lr": 1e-3}, torch.optim.AdamW, {"lr": 1e-3})
SGD = (sgd, {"lr": 0.05, "momentum": 0.9}, torch.optim.SGD, {"lr": 0.05, "momentum": 0.9, "nesterov": False})


def start(seed=0, steps=STEPS):
    """Parameters away from their defaults, and a batch of images and labels for each step."""
    rng = np.random.default_rng(seed)
    params = tree.map(lambda leaf: leaf + 0.1 * rng.standard_normal(leaf.shape), vit.init(CONFIG, rng, np.float64))
    images = rng.standard_normal((steps, B, CONFIG.in_chans, *CONFIG.image))
    return params, images, rng.integers(0, K, (steps, B))


def train_ours(params, images, labels, optimizer, hyper, decay=DECAY):
    order, parts = groups.parameter_groups(params, decay)
    buffer, params = tree.pack(params, order)
    state = optimizer.init(buffer)
    losses = []
    for batch, targets in zip(images, labels, strict=True):
        logits, c_model = vit.forward(params, batch, CONFIG)
        loss, c_loss = cross_entropy.forward(logits, targets)
        _, grads = vit.backward(cross_entropy.backward(1.0, c_loss), c_model)
        groups.apply(optimizer.update, buffer, tree.pack(grads, order)[0], state, parts, **hyper)
        losses.append(float(loss))
    return tree.flatten(params), losses


def train_theirs(params, images, labels, optimizer, hyper):
    model = timm_vit.VisionTransformer(**THEIR_SIZES).double()
    model.load_state_dict({key: torch.tensor(leaf) for key, leaf in tree.flatten(params).items()}, strict=True)
    parts = timm_optim.param_groups_weight_decay(model, DECAY, no_weight_decay_list=model.no_weight_decay())
    steps = optimizer(parts, **hyper)
    losses = []
    for batch, targets in zip(images, labels, strict=True):
        loss = torch.nn.functional.cross_entropy(model(torch.tensor(batch)), torch.tensor(targets))
        steps.zero_grad()
        loss.backward()
        steps.step()
        losses.append(loss.item())
    return {key: leaf.detach().numpy() for key, leaf in model.named_parameters()}, losses


@pytest.mark.parametrize(("ours", "hyper", "theirs", "their_hyper"), [ADAMW, SGD], ids=["adamw", "sgd"])
def test_twenty_steps(ours, hyper, theirs, their_hyper):
    params, images, labels = start()
    trained, losses = train_ours(params, images, labels, ours, hyper)
    references, their_losses = train_theirs(params, images, labels, theirs, their_hyper)
    np.testing.assert_allclose(losses, their_losses, rtol=1e-12, atol=1e-12, err_msg="losses")
    assert trained.keys() == references.keys()
    for key, before in tree.flatten(params).items():
        np.testing.assert_allclose(trained[key], references[key], rtol=1e-9, atol=1e-9, err_msg=key)
        assert np.abs(trained[key] - before).max() > 1e-4, f"{key} never moved"


def test_a_hundred_steps_from_a_checkpoint_of_theirs(tmp_path):
    """torch.save writes the start, we load it without torch; after 100 AdamW steps both are where they were told."""
    params, images, labels = start(seed=1, steps=100)
    torch.save({key: torch.tensor(leaf) for key, leaf in tree.flatten(params).items()}, tmp_path / "start.pt")
    loaded = load(
        tmp_path / "start.pt", np.float64, num_heads=CONFIG.num_heads, image_size=CONFIG.image, grid=CONFIG.grid
    )
    ours, hyper, theirs, their_hyper = ADAMW
    trained, losses = train_ours(loaded.params, images, labels, ours, hyper)
    references, their_losses = train_theirs(params, images, labels, theirs, their_hyper)
    np.testing.assert_allclose(losses, their_losses, rtol=0, atol=1e-7)
    for key, reference in references.items():
        np.testing.assert_allclose(trained[key], reference, rtol=0, atol=1e-7, err_msg=key)
        assert np.abs(reference - tree.flatten(params)[key]).max() > 1e-3, f"{key} never moved"


@pytest.mark.parametrize("fault", ["all decay", "none decays", "gradient twice as large"])
def test_the_comparison_sees(fault, monkeypatch):
    """Faults that barely touch the loss curve: the parameters have to differ by more than the tolerance."""
    params, images, labels = start()
    ours, hyper, theirs, their_hyper = SGD
    if fault == "all decay":
        monkeypatch.setattr(groups, "decays", lambda key, leaf: True)
    if fault == "gradient twice as large":
        backward = cross_entropy.backward
        monkeypatch.setattr(cross_entropy, "backward", lambda dloss, cache: 2 * backward(dloss, cache))
    trained, _ = train_ours(params, images, labels, ours, hyper, decay=0.0 if fault == "none decays" else DECAY)
    references, _ = train_theirs(params, images, labels, theirs, their_hyper)
    assert max(np.abs(trained[key] - references[key]).max() for key in references) > 1e-4
