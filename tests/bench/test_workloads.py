"""The rows are what the README says they are, and NumPy's side does the work that it claims."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from numpy_vit import tree
from numpy_vit.bench import workloads
from numpy_vit.bench.workloads import WORKLOADS, Job, Workload
from numpy_vit.layers import cross_entropy
from numpy_vit.models import vit
from numpy_vit.training import adamw

CONFIG = vit.Config(image_size=12, patch_size=4, num_classes=5, embed_dim=12, depth=2, num_heads=3)
TRAINING = Workload("training", CONFIG, batch=6, training=True)
INFERENCE = Workload("inference", CONFIG, batch=6, training=False)

# Image side, patch side, width, depth, heads, classes, batch, forwards that a run costs.
SHAPES = {
    "tiny-step": (32, 4, 192, 6, 3, 10, 64, 3),
    "patch16-step": (64, 16, 192, 6, 3, 10, 64, 3),
    "ti16-step": (224, 16, 192, 12, 3, 1000, 8, 3),
    "b16-infer-8": (224, 16, 768, 12, 12, 1000, 8, 1),
    "b16-infer-1": (224, 16, 768, 12, 12, 1000, 1, 1),
    "ti16-infer-32": (224, 16, 192, 12, 3, 1000, 32, 1),
}


def test_the_names() -> None:
    assert list(WORKLOADS) == list(SHAPES)


@pytest.mark.parametrize("name", SHAPES)
def test_flop_in_closed_form(name: str) -> None:
    side, patch, D, depth, heads, K, batch, forwards = SHAPES[name]
    S = (side // patch) ** 2 + 1
    macs = (S - 1) * 3 * patch**2 * D + depth * (12 * S * D**2 + 2 * S**2 * D) + D * K
    workload = WORKLOADS[name]
    assert workload.flop == forwards * 2 * batch * macs
    assert (workload.config.num_heads, workload.config.global_pool) == (heads, "token")
    assert workload.threads(4) == ((1, 4) if name == "b16-infer-1" else (4, 1))


def test_inputs_are_seeded_and_survive_their_file(tmp_path: Path) -> None:
    drawn = workloads.draw(TRAINING)
    workloads.write(tmp_path / "inputs.npz", drawn)
    read = workloads.read(tmp_path / "inputs.npz")
    assert list(read.params) == list(tree.flatten(vit.init(CONFIG, np.random.default_rng(0))))
    pairs = [*((drawn.params[key], read.params[key]) for key in read.params), *zip(drawn[1:], read[1:], strict=True)]
    again = workloads.draw(TRAINING)
    for ours, theirs in [*pairs, (drawn.images, again.images), (drawn.params["norm.bias"], again.params["norm.bias"])]:
        np.testing.assert_array_equal(ours, theirs)
        assert ours.dtype == theirs.dtype
        assert np.ptp(ours) > 0  # nothing is left at zeros or ones


@pytest.mark.parametrize("workers", [1, 2])
def test_outputs_of_a_step_against_one_without_shards(workers: int) -> None:
    flat, labels = workloads.draw(TRAINING).params, workloads.draw(TRAINING).labels
    images = workloads.draw(TRAINING).images

    def loss_of(params: Any) -> tuple[Any, float, Any]:
        logits, c_model = vit.forward(params, images, CONFIG)
        loss, c_loss = cross_entropy.forward(logits, labels)
        return logits, float(loss), vit.backward(cross_entropy.backward(1.0, c_loss), c_model)[1]

    buffer, params = tree.pack(tree.unflatten(flat))
    logits, loss, grads = loss_of(params)
    gradient = tree.pack(grads, tree.flatten(params))[0]
    adamw.update(buffer, gradient, adamw.init(buffer), lr=1e-3)  # its defaults are torch.optim.AdamW's
    expected = {
        "logits": logits,
        "loss": loss,
        "gradient_norm": np.linalg.norm(gradient),
        "loss_after_step": loss_of(params)[1],
    }
    found = Job(TRAINING, workloads.draw(TRAINING), workers).outputs()
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=2e-5, atol=1e-5, err_msg=name)
    assert abs(expected["loss_after_step"] - loss) > 1e-2  # the step counts


def test_outputs_of_inference() -> None:
    inputs = workloads.draw(INFERENCE)
    job = Job(INFERENCE, inputs, workers=2)
    expected = vit.predict(tree.unflatten(inputs.params), inputs.images, CONFIG)
    np.testing.assert_allclose(job.outputs()["logits"], expected, rtol=1e-5, atol=1e-6)
    assert job.run() is None
