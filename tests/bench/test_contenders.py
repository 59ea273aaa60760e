"""Every framework's side of the benchmark computes what ours does, so that the times compare equal work."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from numpy_vit.bench import workloads
from numpy_vit.bench.workloads import Job, Workload
from numpy_vit.models import vit

CONTENDERS = Path(__file__).parents[2] / "scripts" / "contenders"
CONFIG = vit.Config(image_size=12, patch_size=4, num_classes=5, embed_dim=12, depth=2, num_heads=3)

pytestmark = pytest.mark.framework


def theirs(name: str) -> Any:
    pytest.importorskip("timm" if name == "torch_eager" else "jax")
    spec = importlib.util.spec_from_file_location(name, CONTENDERS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("contender", ["eager", "shortcut", "jax"])
def test_outputs_agree(contender: str, training: bool) -> None:
    workload = Workload("small", CONFIG, batch=6, training=training)
    inputs = workloads.draw(workload)
    if contender == "jax":
        other = theirs("jax_jit").Jax(workload, inputs)
    else:
        other = theirs("torch_eager").Torch(workload, inputs, 1, contender)
    expected, found = Job(workload, workloads.draw(workload)).outputs(), other.outputs()
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(np.asarray(found[name]), value, rtol=1e-4, atol=1e-4, err_msg=name)
