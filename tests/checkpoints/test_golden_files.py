"""Small files that torch wrote, read as torch reads them (scripts/make_golden_checkpoints.py), without torch."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from numpy_vit.checkpoints import read_tensors

GOLDEN = Path(__file__).parent / "golden"
EXPECTED = json.loads((GOLDEN / "expected.json").read_text("utf-8"))


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("file", EXPECTED)
def test_every_tensor_is_torchs(file, mmap):
    tensors = read_tensors(GOLDEN / file, mmap=mmap)
    assert list(tensors) == list(EXPECTED[file])
    for path, (dtype, shape, data) in EXPECTED[file].items():
        array = tensors[path]
        assert (array.dtype.name, array.shape) == (dtype, tuple(shape)), path
        wanted = np.frombuffer(bytes.fromhex(data), dtype).reshape(shape)
        np.testing.assert_array_equal(array, wanted, err_msg=path)
        assert np.array_equal(np.signbit(array.real), np.signbit(wanted.real)) or np.isnan(wanted).any()
        assert array.flags.c_contiguous
        assert array.dtype.isnative


@pytest.mark.parametrize("file", ["zip_views.pt", "legacy_views.pt"])
def test_tied_tensors_are_one_array_and_other_views_are_copies(file):
    tensors = read_tensors(GOLDEN / file)
    assert tensors["base"] is tensors["tied"]
    assert not np.shares_memory(tensors["base"], tensors["rows"])
    assert all(array.flags.writeable for array in tensors.values())
    mapped = read_tensors(GOLDEN / file, mmap=True)
    assert not mapped["base"].flags.writeable
    assert np.shares_memory(mapped["base"], mapped["rows"])
