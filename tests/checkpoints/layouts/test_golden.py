"""Every layout without a framework: golden files that scripts/make_golden_layouts.py made, and the logits to get."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from numpy_vit import tree
from numpy_vit.checkpoints import safetensors
from numpy_vit.checkpoints.load import load

GOLDEN = Path(__file__).parent / "golden"
EXPECTED = json.loads((GOLDEN / "expected.json").read_text("utf-8"))
ABSORBED = {"dinov2-registers-swiglu", "hf-dinov2-registers"}  # their class token absorbs its position row


@pytest.fixture(params=EXPECTED)
def golden(request, tmp_path):
    name = request.param
    file = tmp_path / "no suffix"
    file.write_bytes(gzip.decompress((GOLDEN / f"{name}.safetensors.gz").read_bytes()))
    return name, file, load(file, np.float64, **EXPECTED[name]["arguments"])


def test_logits(golden):
    name, _, found = golden
    reference = np.array(EXPECTED[name]["logits"])
    images = np.random.default_rng(0).standard_normal((len(reference), 3, *found.config.image))
    logits = found.model.predict(found.params, images, found.config)
    np.testing.assert_allclose(logits, reference, rtol=0, atol=1e-10 * np.abs(reference).max())
    assert not found.report.missing
    assert not found.report.unexpected


def test_the_way_back_is_bit_for_bit(golden):
    name, file, found = golden
    tensors, _ = safetensors.read(file)
    packed = found.layout.pack(tree.flatten(found.params), found.config)
    assert {key for key in tensors if key not in packed} <= set(found.report.ignored)
    for key, array in packed.items():
        if name in ABSORBED and ("cls_token" in key or "pos" in key):
            continue
        assert array.shape == tensors[key].shape, key
        assert (array == tensors[key]).all(), key
    again = found.layout.unpack(packed, found.config)  # the absorbed one too is the same function
    assert all((again[key] == leaf).all() for key, leaf in tree.flatten(found.params).items())


def test_golden_files_are_small():
    assert sum(file.stat().st_size for file in GOLDEN.iterdir()) < 300_000
