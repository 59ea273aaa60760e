"""What the installed torch writes, read without it and compared with what it reads itself."""

from __future__ import annotations

import argparse
import collections
import json
import zipfile

import numpy as np
import pytest

from numpy_vit.checkpoints import read_tensors

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.framework,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning"),
]

FLOAT8 = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu")
INTEGERS = ("int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "uint64", "bool")
DTYPES = ("float64", "float32", "float16", "bfloat16", "complex64", "complex128", "complex32", *INTEGERS, *FLOAT8)
WAYS = {
    "zip": {},
    "legacy": {"_use_new_zipfile_serialization": False},
    "protocol 3": {"pickle_protocol": 3},
    "protocol 4": {"pickle_protocol": 4},
    "protocol 5": {"pickle_protocol": 5},
    "legacy 4": {"_use_new_zipfile_serialization": False, "pickle_protocol": 4},
}


def every_code(dtype):
    """A tensor with any bytes: for 8- and 16-bit dtypes, all of them."""
    width = dtype.itemsize
    if dtype == torch.bool:
        return torch.tensor([True, False, True])
    if width == 1:
        return torch.arange(256, dtype=torch.uint8).view(dtype)
    if width == 2:
        return torch.arange(65536, dtype=torch.int32).to(torch.int16).view(dtype)
    return torch.from_numpy(np.random.default_rng(0).integers(0, 256, 6 * width).astype(np.uint8)).view(dtype)


def as_numpy(tensor):
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if tensor.dtype == torch.bfloat16 or "float8" in str(tensor.dtype):
        tensor = tensor.float()
    if tensor.dtype == torch.complex32:
        tensor = tensor.to(torch.complex64)
    return tensor.numpy()


def assert_read(path, expected):
    for mmap in (False, True):
        found = read_tensors(path, mmap=mmap)
        assert list(found) == list(expected)
        for name, tensor in expected.items():
            array = tensor if isinstance(tensor, np.ndarray) else as_numpy(tensor)
            assert found[name].dtype == array.dtype, name
            np.testing.assert_array_equal(found[name], array, err_msg=name)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(tmp_path, dtype, way):
    if not hasattr(torch, dtype):
        pytest.skip(f"this torch lacks {dtype}")
    tensor = every_code(getattr(torch, dtype))
    torch.save({"x": tensor, "part": tensor[1:3], "one": tensor[1]}, tmp_path / "x", **WAYS[way])
    assert_read(tmp_path / "x", {"x": tensor, "part": tensor[1:3], "one": tensor[1]})


@pytest.mark.parametrize("way", WAYS)
def test_views_and_sharing(tmp_path, way):
    base = torch.randn(4, 6, 5)
    image = torch.randn(2, 3, 4, 5)
    made = {
        "base": base,
        "tied": base,
        "slice": base[1:3, 2:, ::2],
        "permuted": base.permute(2, 0, 1),
        "expanded": base[:, :1].expand(4, 6, 5),
        "overlapping": torch.arange(9.0).unfold(0, 4, 2),
        "channels_last": image.to(memory_format=torch.channels_last),
        "conj": torch.randn(3, dtype=torch.complex64).conj(),
        "neg": torch.randn(3, dtype=torch.complex64).conj().imag,
        "scalar": torch.tensor(3.5),
        "empty": torch.empty(2, 0, 3),
        "empty slice": base[4:],
        "one": base[1:2, 2:3, :],
        "parameter": torch.nn.Parameter(base[0].clone()),
    }
    torch.save(made, tmp_path / "x", **WAYS[way])
    assert_read(tmp_path / "x", made)
    found = read_tensors(tmp_path / "x")
    assert found["base"] is found["tied"]


@pytest.mark.parametrize("way", WAYS)
def test_a_training_checkpoint(tmp_path, way):
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(torch.randn(5, 3)).square().sum().backward()
    optimizer.step()
    array = np.arange(6.0).reshape(2, 3)
    factory = collections.defaultdict(dict)
    factory["a"] = torch.tensor([3])
    made = {
        "epoch": 3,
        "metric": np.float64(0.5),
        "args": argparse.Namespace(model="vit", betas=(0.9, 0.95)),
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "arrays": [array, array.T, np.array([True, False]), np.array(["text"]), np.arange(3, dtype=">i2")],
        "set": {1, 2},
        "bytes": b"abc",
        "size": torch.Size([1, 2]),
        "device": torch.device("cpu"),
        "dtype": torch.float32,
        "factory": factory,
        "rng": torch.get_rng_state(),
    }
    torch.save(made, tmp_path / "x", **WAYS[way])
    expected = {f"model/{name}": tensor for name, tensor in model.state_dict().items()}
    for index, state in optimizer.state_dict()["state"].items():
        expected |= {f"optimizer/state/{index}/{name}": tensor for name, tensor in state.items()}
    expected |= {f"arrays/{i}": made["arrays"][i] for i in (0, 1, 2)} | {"arrays/4": np.arange(3, dtype=np.int16)}
    assert_read(tmp_path / "x", expected | {"factory/a": factory["a"], "rng": made["rng"]})


class Marked(torch.Tensor):
    pass


class Module(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(2, 3)
        self.scale = torch.nn.Parameter(torch.randn(2))
        self.register_buffer("table", torch.randn(3))
        self.plain = torch.randn(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x * self.scale) + self.table


@pytest.mark.parametrize("way", ["zip", "legacy"])
def test_whole_modules_have_the_names_of_their_state_dict(tmp_path, way):
    module = Module()
    torch.save(module, tmp_path / "x", **WAYS[way])
    found = read_tensors(tmp_path / "x")
    assert found.keys() == {*module.state_dict(), "plain"}
    for name, tensor in module.state_dict().items():
        np.testing.assert_array_equal(found[name], as_numpy(tensor))
    torch.save({"model": module}, tmp_path / "x", **WAYS[way])
    assert read_tensors(tmp_path / "x").keys() == {f"model/{name}" for name in found}


def test_torchscript(tmp_path):
    module = Module().eval()
    torch.jit.script(module).save(tmp_path / "x")
    found = read_tensors(tmp_path / "x")
    assert found.keys() >= module.state_dict().keys()
    for name, tensor in module.state_dict().items():
        np.testing.assert_array_equal(found[name], as_numpy(tensor))


@pytest.mark.parametrize("way", ["zip", "legacy"])
def test_tensors_with_attributes_and_of_subclasses(tmp_path, way):
    parameter = torch.nn.Parameter(torch.randn(3))
    parameter.note = "text"
    made = {"attribute": parameter, "subclass": torch.randn(2).as_subclass(Marked)}
    torch.save(made, tmp_path / "x", **WAYS[way])
    assert_read(tmp_path / "x", {name: tensor.as_subclass(torch.Tensor) for name, tensor in made.items()})


@pytest.mark.skipif(not hasattr(torch.serialization, "set_crc32_options"), reason="torch before 2.6")
def test_files_without_checksums(tmp_path):
    made = {"x": torch.randn(3), "z": torch.randn(2, dtype=torch.complex64), "h": torch.randn(4).bfloat16()}
    try:
        torch.serialization.set_crc32_options(False)
        torch.save(made, tmp_path / "x")
    finally:
        torch.serialization.set_crc32_options(True)
    assert_read(tmp_path / "x", made)


def test_big_endian_files(tmp_path):
    """Made from a little-endian one, as nobody has such a machine; torch reads it as well."""
    made = {
        "f": torch.randn(4)[1:],
        "view": torch.randn(3, 2).T,
        "half": torch.randn(4).bfloat16(),
        "long": torch.arange(3),
        "complex": torch.randn(2, dtype=torch.complex128),
        "bool": torch.tensor([True, False]),
    }
    torch.save(made, tmp_path / "little")
    widths = dict(enumerate((4, 4, 2, 8, 8, 1)))  # of a number, and complex numbers are two
    with zipfile.ZipFile(tmp_path / "little") as little, zipfile.ZipFile(tmp_path / "big", "w") as big:
        for name in little.namelist():
            data = little.read(name)
            if name.endswith("/byteorder"):
                data = b"big"
            elif "/data/" in name:
                width = widths[int(name.rpartition("/")[2])]
                data = np.frombuffer(data, np.uint8).reshape(-1, width)[:, ::-1].tobytes()
            big.writestr(name, data)
    assert_read(tmp_path / "big", made)
    for name, tensor in torch.load(tmp_path / "big").items():
        assert torch.equal(tensor, made[name])


def test_sharded_torch_files(tmp_path):
    made = {"a": torch.randn(3), "b": torch.randn(2)}
    for name, tensor in made.items():
        torch.save({name: tensor}, tmp_path / f"{name}.bin")
    index = {"metadata": {}, "weight_map": {name: f"{name}.bin" for name in made}}
    (tmp_path / "index.json").write_text(json.dumps(index), "utf-8")
    assert_read(tmp_path / "index.json", made)


def test_tensors_that_are_no_arrays_are_refused_by_name(tmp_path):
    torch.save({"model": {"s": torch.eye(2).to_sparse()}}, tmp_path / "x")
    with pytest.raises(Exception, match="x: tensor 'model/s' is sparse"):
        read_tensors(tmp_path / "x")
