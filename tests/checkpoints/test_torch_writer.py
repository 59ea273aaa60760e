"""Writing torch's zip format: our reader and torch itself read what went in."""

from __future__ import annotations

import zipfile

import numpy as np
import pytest

from numpy_vit.checkpoints import read_tensors, torch_writer

TENSORS = {
    "blocks.0.weight": np.arange(12, dtype=np.float32).reshape(3, 4).T,  # not contiguous
    "ünicode": np.arange(3, dtype=np.float64),
    "half": np.array([1.5, -2], np.float16),
    "scalar": np.array(7, np.int64),
    "empty": np.zeros((0, 3), np.float32),
    "flags": np.array([True, False]),
    "big": np.arange(300, dtype=">i4"),
}


@pytest.fixture
def file(tmp_path):
    torch_writer.write(tmp_path / "some.model.pt", TENSORS)
    return tmp_path / "some.model.pt"


def test_our_reader_reads_it(file):
    found = read_tensors(file)
    assert found.keys() == TENSORS.keys()
    for key, array in TENSORS.items():
        assert found[key].shape == array.shape
        assert found[key].dtype == array.dtype.newbyteorder("=")
        np.testing.assert_array_equal(found[key], array)


def test_data_are_aligned_and_the_same_tensors_give_the_same_bytes(file, tmp_path):
    with zipfile.ZipFile(file) as archive:
        assert archive.testzip() is None
        for info in archive.infolist():
            begin = info.header_offset + 30 + len(info.filename) + len(info.extra)
            assert begin % 64 == 0, info.filename
            assert info.filename.startswith("some.model/")
    first = file.read_bytes()
    torch_writer.write(file, TENSORS)
    assert file.read_bytes() == first


def test_a_dtype_that_torch_lacks_leaves_the_old_file(file):
    before = file.read_bytes()
    with pytest.raises(ValueError, match="cannot hold uint32"):
        torch_writer.write(file, {"a": np.zeros(2, np.uint32)})
    assert file.read_bytes() == before
    assert len(list(file.parent.iterdir())) == 1


@pytest.mark.framework
@pytest.mark.parametrize("mmap", [False, True])
def test_torch_loads_it_with_weights_only(file, mmap):
    torch = pytest.importorskip("torch")
    found = torch.load(file, weights_only=True, mmap=mmap)
    assert found.keys() == TENSORS.keys()
    for key, array in TENSORS.items():
        assert found[key].is_contiguous()
        np.testing.assert_array_equal(found[key].numpy(), array)
