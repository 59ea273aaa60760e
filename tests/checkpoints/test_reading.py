"""read_tensors on safetensors, shards, npz and npy; maps; and the real files where they are."""

from __future__ import annotations

import hashlib
import io
import json
import os
import struct
import time
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest

from numpy_vit.checkpoints import dtypes, read_tensors, safetensors
from numpy_vit.errors import CheckpointError

REAL = Path(os.environ.get("NUMPY_VIT_REAL", "")) / "torch_files"
MANIFEST = REAL / "manifest.json"
FILES = json.loads(MANIFEST.read_text("utf-8")) if "NUMPY_VIT_REAL" in os.environ else {}

RNG = np.random.default_rng(0)
ARRAYS = {
    "Transformer/encoderblock_0/LayerNorm_0/scale": RNG.standard_normal((3, 4)).astype(np.float32),
    "fortran": np.asfortranarray(RNG.standard_normal((2, 5))),
    "big": RNG.standard_normal(3).astype(">f4"),
    "bool": np.array([[True, False]]),
    "scalar": np.array(7),
    "empty": np.zeros((0, 3), np.int16),
    "half": RNG.standard_normal(3).astype(np.float16),
    "complex": RNG.standard_normal(3) * 1j,
    "x.npy": np.arange(3, dtype=np.uint64),
}


def assert_equal(found, expected):
    assert list(found) == list(expected)
    for name, array in expected.items():
        assert found[name].dtype == array.dtype.newbyteorder("="), name
        assert found[name].dtype.isnative
        assert found[name].flags.c_contiguous
        np.testing.assert_array_equal(found[name], array, strict=True, err_msg=name)


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz(tmp_path, save, mmap):
    with (tmp_path / "a.pt").open("wb") as file:  # names do not matter
        save(file, **ARRAYS)
    found = read_tensors(tmp_path / "a.pt", mmap=mmap)
    assert_equal(found, {name: array.astype(array.dtype.newbyteorder("=")) for name, array in ARRAYS.items()})
    assert found["half"].flags.writeable == (not mmap or save is np.savez_compressed)


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("name", ARRAYS)
def test_npy(tmp_path, name, mmap):
    np.save(tmp_path / "a.npy", ARRAYS[name])
    array = ARRAYS[name]
    assert_equal(read_tensors(tmp_path / "a.npy", mmap=mmap), {"": array.astype(array.dtype.newbyteorder("="))})


def test_bfloat16_in_npz_and_what_is_no_number(tmp_path):
    """JAX stores bfloat16 as two bytes without a type."""
    bits = np.array([0x3F80, 0xC000, 0x7F80, 0x0001], np.uint16)
    header = "{'descr': '|V2', 'fortran_order': False, 'shape': (4,), }".ljust(117) + "\n"
    body = b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header.encode() + bits.tobytes()
    file = io.BytesIO()
    text, records = io.BytesIO(), io.BytesIO()
    np.save(text, np.array(["a", "b"]))
    np.save(records, np.zeros(2, [("a", "<f4")]))
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("w.npy", body)
        archive.writestr("names.npy", text.getvalue())
        archive.writestr("records.npy", records.getvalue())
        archive.writestr("readme.txt", b"hello")
    (tmp_path / "a").write_bytes(file.getvalue())
    for mmap in (False, True):
        found = read_tensors(tmp_path / "a", mmap=mmap)
        assert_equal(found, {"w": np.array([1, -2, np.inf, 2.0**-133], np.float32)})


def test_an_archive_of_nothing(tmp_path):
    np.savez(tmp_path / "a.npz")
    assert read_tensors(tmp_path / "a.npz") == {}


def test_headers_of_other_writers(tmp_path):
    for text in (
        '{"shape":(2,2),"fortran_order":True,"descr":"<i2"}',
        "{ 'fortran_order' : True , 'descr' : '<i2', 'shape' : ( 2L, 2L ) }",
    ):
        header = text.encode() + b"\n"
        body = b"\x93NUMPY\2\0" + struct.pack("<I", len(header)) + header + np.arange(4, dtype="<i2").tobytes()
        (tmp_path / "a").write_bytes(body)
        assert read_tensors(tmp_path / "a")[""].tolist() == [[0, 2], [1, 3]]


def test_an_archive_with_zip64_records_and_a_comment(tmp_path):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        body = io.BytesIO()
        np.save(body, np.arange(3))
        with archive.open("a.npy", "w", force_zip64=True) as member:
            member.write(body.getvalue())
        archive.comment = b"PK\5\6 is not the end"
    (tmp_path / "a").write_bytes(file.getvalue())
    assert read_tensors(tmp_path / "a")["a"].tolist() == [0, 1, 2]


def bits_of_every_dtype():
    flat = {}
    for code, stored in safetensors.STORED.items():
        flat[code] = RNG.integers(0, 2 if code == "BOOL" else 256, (3, stored.itemsize), dtype=np.uint8)
    return flat


@pytest.mark.parametrize("mmap", [False, True])
def test_safetensors_of_every_dtype(tmp_path, mmap):
    flat = bits_of_every_dtype()
    header, position = {"__metadata__": {"format": "pt"}}, 0
    for code, raw in flat.items():
        header[f"x.{code}"] = {"dtype": code, "shape": [1, 3], "data_offsets": [position, position + raw.size]}
        position += raw.size
    text = json.dumps(header).encode()
    data = b"".join(raw.tobytes() for raw in flat.values())
    (tmp_path / "a").write_bytes(len(text).to_bytes(8, "little") + text + data)
    assert_equal(read_tensors(tmp_path / "a", mmap=mmap), safetensors.read(tmp_path / "a")[0])


@pytest.mark.parametrize("mmap", [False, True])
def test_sharded_safetensors(tmp_path, mmap):
    safetensors.write(tmp_path / "1", {"b": np.arange(2), "a": np.ones(3)})
    safetensors.write(tmp_path / "2", {"c": np.arange(4.0)})
    index = {"metadata": {"total_size": 1}, "weight_map": {"a": "1", "c": "2", "b": "1"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index, indent=2), "utf-8")
    found = read_tensors(tmp_path / "model.safetensors.index.json", mmap=mmap)
    assert_equal(found, {"a": np.ones(3), "c": np.arange(4.0), "b": np.arange(2)})


def test_maps_are_read_only_take_no_time_and_outlive_the_name(tmp_path):
    arrays = {f"x{i}": np.full((1000, 1000), i, np.float32) for i in range(16)}  # 64 MB
    safetensors.write(tmp_path / "a", arrays)
    start = time.perf_counter()
    found = read_tensors(tmp_path / "a", mmap=True)
    assert found["x7"][500, 500] == 7
    assert time.perf_counter() - start < 0.1
    if os.name == "posix":
        (tmp_path / "a").unlink()
    assert found["x9"][0, 0] == 9
    with pytest.raises(ValueError, match="read-only"):
        found["x7"][0, 0] = 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del found


def test_the_float8_tables_of_graphcore_and_of_scales():
    """Source: Noune et al. (2022), "8-bit Numerical Formats for Deep Neural Networks"; OCP MX specification 1.0."""
    codes = np.arange(256, dtype=np.uint8)
    for name, fraction, bias in (("float8_e4m3fnuz", 3, 8), ("float8_e5m2fnuz", 2, 16)):
        values = dtypes.decode(codes, name)
        for code in (*range(128), *range(129, 256)):
            exponent, rest = (code & 127) >> fraction, code & (2**fraction - 1)
            magnitude = (rest + (2**fraction if exponent else 0)) * 2.0 ** (max(exponent, 1) - bias - fraction)
            assert values[code] == (magnitude if code < 128 else -magnitude)
        assert np.isnan(values[128])
    scales = dtypes.decode(codes, "float8_e8m0fnu")
    assert (scales[127], scales[0], scales[254]) == (1, 2.0**-127, 2.0**127)
    assert np.isnan(scales[255])


@pytest.mark.skipif("NUMPY_VIT_REAL" not in os.environ, reason="NUMPY_VIT_REAL names no folder of real files")
@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("file", FILES)
def test_real_torch_files(file, mmap):
    about = FILES[file]
    if "torch_error" in about:
        with pytest.raises(CheckpointError, match=Path(file).name):
            read_tensors(REAL / file, mmap=mmap)
        return
    found = read_tensors(REAL / file, mmap=mmap)
    expected = {path.removeprefix("/"): tensor for path, tensor in about["tensors"].items()}
    assert found.keys() == expected.keys()
    for path, tensor in expected.items():
        array = found[path]
        if tensor["dtype"] == "bfloat16":
            array = (array.view(np.uint32) >> 16).astype(np.uint16)
        else:
            assert array.dtype.name == tensor["dtype"]
        assert list(array.shape) == tensor["shape"]
        assert (
            hashlib.sha256(array.astype(array.dtype.newbyteorder("<")).tobytes()).hexdigest()
            == (tensor["sha256_contiguous_le"])
        ), path
