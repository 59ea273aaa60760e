"""The safetensors reader and writer: bytes by hand, round trips, and the reference implementation."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from numpy_vit.checkpoints import safetensors

NATIVE = ["f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?"]


def build(header, data=b"", length=None):
    """The bytes of a file with this header (a dict, or text to be taken as it is)."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def entry(dtype="F32", shape=(2,), offsets=(0, 8)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def samples():
    rng = np.random.default_rng(0)
    tensors = {f"kind.{kind}": (rng.standard_normal((3, 5)) * 3).astype(kind) for kind in NATIVE}
    return tensors | {
        "scalar": np.array(7, np.int64),
        "empty": np.zeros((0, 4), np.float32),
        "unicode ü\n\"": np.arange(3, dtype=np.float32),
        "": np.ones(1, np.float32),
    }  # fmt: skip


def layouts():
    base = np.arange(24, dtype=np.float32).reshape(4, 6)
    return {
        "transposed": base.T,
        "Fortran": np.asfortranarray(base),
        "strided": base[::2, ::3],
        "reversed": base[::-1],
        "broadcast": np.broadcast_to(np.float32(5), (3, 4)),
        "big-endian": base.astype(">f4"),
        "big-endian transposed": base.astype(">f8").T,
        "unaligned": np.frombuffer(b"x" + base.tobytes(), np.float32, offset=1).reshape(4, 6),
        "read-only": np.frombuffer(base.tobytes(), np.float32),
        "heads": np.arange(24, dtype=np.int16).reshape(2, 3, 4).transpose(1, 0, 2),
    }


def assert_same(left, right):
    assert list(left) == list(right)
    for name, array in right.items():
        assert left[name].shape == array.shape, name
        assert left[name].dtype == array.dtype.newbyteorder("="), name
        np.testing.assert_array_equal(left[name], array)


def test_reads_bytes_by_hand(tmp_path):
    path = tmp_path / "hand"
    values = np.array([1.0, -2.5], "<f4").tobytes()
    path.write_bytes(
        build({"__metadata__": {"a": "b"}, "y": entry("U8", [3], [8, 11]), "x": entry()}, values + b"\x01\x02\xff")
    )
    tensors, metadata = safetensors.read(path)
    assert metadata == {"a": "b"}
    assert_same(tensors, {"y": np.array([1, 2, 255], np.uint8), "x": np.array([1.0, -2.5], np.float32)})


def test_writes_bytes_by_hand(tmp_path):
    path = tmp_path / "hand"
    safetensors.write(path, {"b": np.array([1, 2], np.int16), "a": np.array(1.0)}, {"k": "v"})
    text = (
        b'{"__metadata__":{"k":"v"},"b":{"dtype":"I16","shape":[2],"data_offsets":[0,4]},'
        b'"a":{"dtype":"F64","shape":[],"data_offsets":[4,12]}}'
    )
    text += b" " * (-len(text) % 8)
    data = b"\x01\x00\x02\x00" + b"\x00\x00\x00\x00\x00\x00\xf0\x3f"
    assert path.read_bytes() == len(text).to_bytes(8, "little") + text + data


@pytest.mark.parametrize("make", [samples, layouts, dict])
def test_round_trip(tmp_path, make):
    tensors, path = make(), tmp_path / "model.safetensors"
    safetensors.write(path, tensors, {"config": "ü", "": ""})
    back, metadata = safetensors.read(path)
    assert_same(back, tensors)
    assert metadata == {"config": "ü", "": ""}
    for array in back.values():
        assert array.flags.writeable and array.flags.owndata and array.flags.c_contiguous
    once = path.read_bytes()
    assert (8 + int.from_bytes(once[:8], "little")) % 8 == 0
    safetensors.write(path, make(), {"config": "ü", "": ""})
    assert path.read_bytes() == once
    assert [file.name for file in tmp_path.iterdir()] == ["model.safetensors"]


def test_garbled_memory_order_would_be_seen():
    # negative control of the layouts: their memory, taken as it lies there, is not their values
    array = layouts()["transposed"]
    garbled = np.frombuffer(array.tobytes(order="A"), array.dtype).reshape(array.shape)
    with pytest.raises(AssertionError):
        assert_same({"x": garbled}, {"x": array})


def test_bfloat16(tmp_path):
    # the upper halves of 1, -2, 3.140625, inf, nan and of the smallest subnormal
    bits = np.array([0x3F80, 0xC000, 0x4049, 0x7F80, 0x7FC0, 0x0001], "<u2")
    path = tmp_path / "b"
    path.write_bytes(
        build({"x": entry("BF16", [6], [0, 12]), "s": entry("BF16", [], [12, 14])}, bits.tobytes() + b"\x80\x3f")
    )
    tensors, _ = safetensors.read(path)
    assert_same(
        tensors,
        {
            "x": np.array([1, -2, 3.140625, np.inf, np.nan, 2.0**-133], np.float32),
            "s": np.array(1.0, np.float32),
        },
    )
    assert all(array.flags.owndata and array.flags.writeable for array in tensors.values())


def read_float8(tmp_path, dtype):
    path = tmp_path / "f8"
    path.write_bytes(build({"x": entry(dtype, [16, 16], [0, 256])}, bytes(range(256))))
    values = safetensors.read(path)[0]["x"]
    assert values.dtype == np.float32 and values.shape == (16, 16) and values.flags.owndata
    return values.ravel()


def test_float8_e5m2_is_the_upper_byte_of_float16(tmp_path):
    halves = (np.arange(256, dtype=np.uint16) << 8).view(np.float16)
    values = read_float8(tmp_path, "F8_E5M2")
    np.testing.assert_array_equal(values, halves.astype(np.float32))
    np.testing.assert_array_equal(np.signbit(values[[0, 128]]), [False, True])


def test_float8_e4m3(tmp_path):
    values = read_float8(tmp_path, "F8_E4M3")
    for code in range(127):
        exponent, fraction = divmod(code, 8)
        expected = fraction * 2.0**-9 if exponent == 0 else (1 + fraction / 8) * 2.0 ** (exponent - 7)
        assert values[code] == expected and values[code + 128] == -expected
    assert math.isnan(values[127]) and math.isnan(values[255]) and values[126] == 448 and values[0x38] == 1
    np.testing.assert_array_equal(np.signbit(values[[0, 128]]), [False, True])


def test_bool_bytes_become_bools(tmp_path):
    path = tmp_path / "b"
    path.write_bytes(build({"x": entry("BOOL", [3], [0, 3])}, b"\x00\x01\x07"))
    values = safetensors.read(path)[0]["x"]
    np.testing.assert_array_equal(values.view(np.uint8), [0, 1, 1])


def test_unaligned_data(tmp_path):
    path = tmp_path / "u"
    values = np.array([1.0, 2.0], "<f4")
    path.write_bytes(build({"a": entry("U8", [1], [0, 1]), "b": entry(offsets=[1, 9])}, b"\x05" + values.tobytes()))
    assert_same(safetensors.read(path)[0], {"a": np.array([5], np.uint8), "b": values})


def test_writer_refuses_what_it_cannot_write(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    for tensors in (
        {"x": np.zeros(2, np.complex64)},
        {"x": np.array([None])},
        {"__metadata__": np.zeros(2)},
        {"\ud800": np.zeros(2)},
    ):
        with pytest.raises(ValueError):
            safetensors.write(path, tensors)
    with pytest.raises(TypeError, match="texts"):
        safetensors.write(path, {}, {"a": 1})
    assert path.read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_header_alone(tmp_path):
    path = tmp_path / "file"
    safetensors.write(path, {"a": np.zeros((2, 3), np.float32), "b": np.zeros(4, np.uint8)}, {"k": "v"})
    with path.open("rb") as file:
        entries, metadata = safetensors.read_header(file, "file")
    size = path.stat().st_size
    assert entries == {
        "a": safetensors.Entry("F32", (2, 3), size - 28, size - 4),
        "b": safetensors.Entry("U8", (4,), size - 4, size),
    }
    assert metadata == {"k": "v"}


@pytest.mark.framework
@pytest.mark.parametrize("make", [samples, layouts])
def test_reference_reads_ours(tmp_path, make):
    reference = pytest.importorskip("safetensors")
    numpy_side = pytest.importorskip("safetensors.numpy")
    tensors, path = make(), tmp_path / "ours"
    safetensors.write(path, tensors, {"format": "pt", "ü": "1"})
    theirs = numpy_side.load_file(path)
    assert_same({name: theirs[name] for name in tensors}, tensors)
    with reference.safe_open(path, "np") as file:
        assert file.metadata() == {"format": "pt", "ü": "1"}


@pytest.mark.framework
def test_ours_reads_reference(tmp_path):
    torch = pytest.importorskip("torch")
    torch_side = pytest.importorskip("safetensors.torch")
    generator = torch.Generator().manual_seed(0)
    kinds = [
        torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2,
        torch.int64, torch.int32, torch.int16, torch.int8, torch.uint64, torch.uint32, torch.uint16,
        torch.uint8, torch.bool,
    ]  # fmt: skip
    tensors = {str(kind): (torch.rand(3, 5, generator=generator) * 9).to(kind) for kind in kinds}
    tensors |= {"scalar": torch.tensor(2.5), "empty": torch.zeros(0, 3)}
    path = tmp_path / "theirs"
    torch_side.save_file(tensors, path, {"format": "pt"})
    ours, metadata = safetensors.read(path)
    assert metadata == {"format": "pt"} and ours.keys() == tensors.keys()
    for name, tensor in tensors.items():
        narrow = tensor.dtype in (torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2)
        expected = (tensor.float() if narrow else tensor).numpy()
        assert ours[name].dtype == expected.dtype and ours[name].shape == expected.shape, name
        np.testing.assert_array_equal(ours[name], expected)


@pytest.mark.framework
@pytest.mark.parametrize("dtype, name", [("F8_E4M3", "float8_e4m3fn"), ("F8_E5M2", "float8_e5m2")])
def test_float8_is_torchs(tmp_path, dtype, name):
    torch = pytest.importorskip("torch")
    theirs = torch.arange(256, dtype=torch.uint8).view(getattr(torch, name)).float().numpy()
    np.testing.assert_array_equal(read_float8(tmp_path, dtype), theirs)
