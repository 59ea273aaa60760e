"""Every layout against the library that it is of: logits, all gradients mapped back, and the way back bit for bit."""

from __future__ import annotations

import importlib.util
import re
import warnings
from pathlib import Path

import numpy as np
import pytest

from numpy_vit import tree
from numpy_vit.checkpoints import safetensors
from numpy_vit.checkpoints.load import load

torch = pytest.importorskip("torch")
for name in ("timm", "torchvision", "transformers"):
    pytest.importorskip(name)

pytestmark = pytest.mark.framework

SCRIPT = Path(__file__).parents[3] / "scripts" / "make_golden_layouts.py"


def golden():
    spec = importlib.util.spec_from_file_location("make_golden_layouts", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        __import__("sys").modules[spec.name] = module
        spec.loader.exec_module(module)
    return module


MADE = golden()
# Tensors that the way back changes, and keeps the function: a class token that absorbed its position row.
ABSORBED = {"dinov2-registers-swiglu", "hf-dinov2-registers", "hf-dinov2-registers-memory"}


def built(name, tmp_path):
    if name.startswith("vit-pytorch") and "20" not in name:
        pytest.importorskip("vit_pytorch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        case = MADE.CASES[name]()
        tensors = case.tensors()
    safetensors.write(tmp_path / "model", tensors)
    return case, tensors, load(tmp_path / "model", np.float64, **case.arguments)


@pytest.mark.parametrize("name", MADE.CASES)
def test_logits_and_all_gradients(name, tmp_path):
    case, tensors, found = built(name, tmp_path)
    images = MADE.images()
    theirs = case.run(torch.tensor(images))
    both = isinstance(theirs, tuple)
    ours, cache = found.model.forward(found.params, images, found.config)
    if name in ("hf-clip", "openai-clip"):
        assert found.config.num_classes == MADE.E
    for a, b in zip(ours if both else (ours,), theirs if both else (theirs,), strict=True):
        reference = b.detach().numpy()
        assert np.abs(reference).max() > 1e-2
        np.testing.assert_allclose(a, reference, rtol=1e-10, atol=1e-10 * np.abs(reference).max())

    rng = np.random.default_rng(1)
    upstream = tuple(rng.standard_normal(b.shape) for b in (theirs if both else (theirs,)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reference = case.gradients(
            theirs, tuple(torch.tensor(u) for u in upstream) if both else torch.tensor(upstream[0])
        )
    _, grads = found.model.backward(upstream if both else upstream[0], cache)
    packed = found.layout.pack(tree.flatten(grads), found.config)
    if name in ABSORBED:  # the transpose of a sum hands the gradient to both
        table = next(key for key in packed if re.search("pos", key))
        token = next(key for key in packed if key.endswith("cls_token"))
        packed[table][:, :1] = packed[token]
    if name == "dinov2-registers-swiglu":
        reference["cls_token"] = reference["cls_token"] + 0.25  # undo what the renaming subtracts
        reference["pos_embed"][:, :1] = reference["cls_token"]
    known = [key for key in tensors if key in packed and tensors[key].size]
    assert {key for key in tensors if key not in packed} <= set(found.report.ignored)
    scale = max(np.abs(reference[key]).max() for key in known)
    for key in known:
        np.testing.assert_allclose(packed[key], reference[key], rtol=1e-9, atol=1e-11 * scale, err_msg=key)


@pytest.mark.parametrize("name", MADE.CASES)
def test_the_way_back_is_bit_for_bit(name, tmp_path):
    _, tensors, found = built(name, tmp_path)
    packed = found.layout.pack(tree.flatten(found.params), found.config)
    assert set(packed) <= set(tensors)
    different = {
        key for key, array in packed.items() if array.shape != tensors[key].shape or (array != tensors[key]).any()
    }
    if name in ABSORBED:
        assert {key.split(".")[-1] for key in different} == {
            "cls_token", "pos_embed" if name.startswith("dino") else "position_embeddings"
        }  # fmt: skip
    else:
        assert not different
    assert {key for key in tensors if key not in packed} <= set(found.report.ignored)
    assert not found.report.unexpected
    again = found.layout.unpack(packed, found.config)
    assert all((again[key] == leaf).all() for key, leaf in tree.flatten(found.params).items())
