"""Pickles made to run code, to fill the memory or to hang: one error each, or nothing but inert records."""

from __future__ import annotations

import io
import os
import struct
import sys
import time
import tracemalloc
import zipfile

import numpy as np
import pytest

from numpy_vit.checkpoints import pickles, read_tensors
from numpy_vit.errors import CheckpointError

FLOATS = np.arange(1, 5, dtype="<f4").tobytes()


def text(value):
    return b"X" + struct.pack("<I", len(value.encode())) + value.encode()


def number(value):
    data = value.to_bytes(12, "little", signed=True)
    return b"\x8a" + bytes([len(data)]) + data


def name(module, attribute):
    return b"c" + module.encode() + b"\n" + attribute.encode() + b"\n"


def storage(key="0", numel=4, kind="FloatStorage", more=b""):
    return b"(" + text("storage") + name("torch", kind) + text(key) + text("cpu") + number(numel) + more + b"tQ"


def tensor(place=None, offset=0, size=(4,), stride=(1,), more=b""):
    sizes, strides = (b"(" + b"".join(map(number, row)) + b"t" for row in (size, stride))
    build = name("torch._utils", "_rebuild_tensor_v2")
    return build + b"(" + (place or storage()) + number(offset) + sizes + strides + b"\x89N" + more + b"tR"


def entry(key, value):
    return text(key) + value + b"s"


def torch_zip(pickle, data=FLOATS, root="a/", method=zipfile.ZIP_STORED, **members):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        archive.writestr(f"{root}data.pkl", b"\x80\2" + pickle + b".")
        for key, value in {"data/0": data, "version": b"3\n", **members}.items():
            if value is not None:
                archive.writestr(f"{root}{key}", value)
    return file.getvalue()


MAGIC = b"\x80\2\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."


def legacy(pickle):
    """The five pickles, the third of them empty, then the count and the items of storage "0"."""
    pickles = [b"\x80\2" + part + b"." for part in (b"M\xe9\x03", b"}", pickle, b"](" + text("0") + b"e")]
    return b"".join([MAGIC, *pickles, struct.pack("<q", 4), FLOATS])


GOOD = b"}" + entry("x", tensor())


def read(tmp_path, data, **options):
    """Read, within 64 MB and 10 seconds."""
    path = tmp_path / "file"
    path.write_bytes(data)
    tracemalloc.start()
    start = time.perf_counter()
    try:
        return read_tensors(path, **options)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 64 << 20
        assert time.perf_counter() - start < 10


@pytest.mark.parametrize(
    "data", [torch_zip(GOOD), legacy(GOOD), torch_zip(GOOD, root=""), torch_zip(GOOD, root="x/y/")]
)
def test_the_files_of_these_tests_are_right_but_for_their_fault(tmp_path, data):
    assert read(tmp_path, data)["x"].tolist() == [1, 2, 3, 4]


PAIR = b"]" + text("y") + b"a" + tensor() + b"a"
B = name("a", "B")
VALUES = {  # of the key "x": the path of the tensor in it, and the pickle
    "the oldest rebuild": ("x", tensor().replace(b"_rebuild_tensor_v2", b"_rebuild_tensor")),
    "a GPU's storage": ("x", tensor().replace(b"ctorch\nFloat", b"ctorch.cuda\nFloat")),
    "Python 2's OrderedDict": ("x/y", name("collections", "OrderedDict") + b"(]" + PAIR + b"atR"),
    "a Variable": ("x", name("torch.autograd.variable", "Variable") + b"(" + tensor() + b"tR(\x89\x89NNtb"),
    "a Parameter": ("x", name("torch._utils", "_rebuild_parameter") + b"(" + tensor() + b"\x88NtR"),
    "a set": ("x/0", name("builtins", "set") + b"((" + tensor() + b"ttR"),
    "an attribute": ("x/weight", B + b")\x81}" + entry("weight", tensor()) + b"b"),
    "slots": ("x/weight", B + b")\x81N}" + entry("weight", tensor()) + b"\x86b"),
    "another state": ("x/state/0", B + b")\x81(" + tensor() + b"tb"),
    "an argument": ("x/1", B + b"(K\1" + tensor() + b"tR"),
    "a key that is a number": ("x/7", b"}K\7" + tensor() + b"s"),
    "a key that is a pair": ("x/(7, 1)", b"}K\7K\1\x86" + tensor() + b"s"),
    "a key that is a class": ("x/key 0", b"}" + B + tensor() + b"s"),
    "the last of two": ("x/y", b"}" + entry("y", b"N") + entry("y", tensor())),
}


@pytest.mark.parametrize("what", VALUES)
def test_paths_and_the_names_of_other_years(tmp_path, what):
    path, pickle = VALUES[what]
    found = read(tmp_path, torch_zip(b"}" + entry("x", pickle)))
    assert {key: array.tolist() for key, array in found.items()} == {path: [1, 2, 3, 4]}


COMMAND = "touch ran"
ARGS = b"(" + text(COMMAND) + b"t"
CALLS = {
    "GLOBAL and REDUCE": name("os", "system") + ARGS + b"R",
    "STACK_GLOBAL": b"\x8c\2os\x8c\6system\x93" + ARGS + b"R",
    "a dotted name": text("numpy_vit.errors") + text("os.system") + b"\x93" + ARGS + b"R",
    "a dotted name of ours": text("numpy") + text("os.system") + b"\x93" + ARGS + b"R",
    "INST": b"(" + text(COMMAND) + b"ios\nsystem\n",
    "OBJ": b"(" + name("os", "system") + text(COMMAND) + b"o",
    "NEWOBJ": name("os", "system") + ARGS + b"\x81",
    "NEWOBJ_EX": name("os", "system") + ARGS + b"}\x92",
    "eval": name("builtins", "eval") + b"(" + text("__import__('os').system('touch ran')") + b"tR",
    "getattr": name("builtins", "getattr") + b"(" + name("os", "path") + text("join") + b"tR" + ARGS + b"R",
    "BUILD with __setstate__": name("a", "B")
    + b")\x81}"
    + entry("__setstate__", name("os", "system"))
    + b"b"
    + text(COMMAND)
    + b"b",
    "a reduction in a type": name("torch._tensor", "_rebuild_from_type_v2")
    + b"("
    + name("os", "system")
    + name("torch", "Tensor")
    + ARGS
    + b"}tR",
    "a dtype that is evaluated": name("numpy", "dtype") + b"(" + text("O8") + b"\x89\x88tR",
    "nested torch files": name("torch.storage", "_load_from_bytes") + b"(C\4abcdtR",
    "_codecs.encode": name("_codecs", "encode") + b"(" + text("touch ran") + text("rot13") + b"tR",
    "set of a list": name("builtins", "set") + b"(](K\1K\2etR",
    "functools.partial": name("functools", "partial") + b"(" + name("os", "system") + text(COMMAND) + b"tR)R",
    "a module with source": b"("
    + text("module")
    + name("os", "system")
    + text("f.py")
    + text("import os")
    + b"tQ"
    + ARGS
    + b"R",
}


@pytest.mark.parametrize("make", [torch_zip, legacy])
@pytest.mark.parametrize("call", CALLS)
def test_calls_are_inert_and_the_tensors_beside_them_are_read(tmp_path, monkeypatch, call, make):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "system", lambda command: pytest.fail("os.system was called"))
    before = set(sys.modules)
    found = read(tmp_path, make(b"}" + entry("call", CALLS[call]) + entry("x", tensor())))
    assert found["x"].tolist() == [1, 2, 3, 4]
    assert list(found) == ["x"]
    assert not (tmp_path / "ran").exists()
    assert set(sys.modules) == before


def test_no_module_that_a_file_names_is_imported(tmp_path):
    sys.modules.pop("antigravity", None)
    read(tmp_path, torch_zip(b"}" + entry("x", name("antigravity", "fly") + b")R")))
    assert "antigravity" not in sys.modules


X = b"}" + entry("x", tensor())
SYSTEM = name("os", "system")
CONJ = b"}" + entry("conj", b"\x88")
OF_TYPE = "_rebuild_from_type_v2"
FAULTS = {
    "BUILD on a global": (name("os", "system") + b"}b", "state to something that is no object"),
    "BUILD on a list": (b"]}b", "state to something"),
    "EXT1": (b"\x82\1", "opcode"),
    "text persistent id": (b"Pabc\n", "opcode"),
    "an out-of-band buffer": (b"\x97", "opcode"),
    "an integer in text": (b"I" + b"9" * 100_000 + b"\n", "opcode"),
    "protocol 0": (b"\x80\0", "protocol 0"),
    "protocol 200": (b"\x80\xc8", "protocol 200"),
    "huge LONG4": (b"\x8b\xff\xff\xff\x7f", "integer of 2147483647 bytes"),
    "large LONG4": (b"\x8b" + struct.pack("<I", 100_000) + b"\1" * 100_000, "integer of 100000 bytes"),
    "huge BINUNICODE8": (b"\x8d" + b"\xff" * 7 + b"\x7f", "cut off"),
    "huge BINBYTES8": (b"\x8e" + b"\xff" * 8, "cut off"),
    "huge BYTEARRAY8": (b"\x96" + b"\0" * 6 + b"\1\0", "cut off"),
    "no STOP": (b"}" * 9 + b"K", "cut off"),
    "an empty stack": (b"0", "stack"),
    "no mark": (b"e", "mark"),
    "a stack below its mark": (b"](0", "stack"),
    "an unknown memo": (b"h\5", "object 5"),
    "arguments that are no tuple": (name("a", "b") + b"]R", "no tuple"),
    "a name that is no text": (b"K\1K\2\x93", "two short texts"),
    "a name without an end": (b"c" + b"a" * 100_000, "without an end"),
    "appending to a tuple": (b")K\1a", "no list"),
    "items of a list": (b"]K\1K\2s", "no dict"),
    "half an item": (b"}(K\1u", "no dict"),
    "a persistent id of another kind": (text("0") + b"Q", "persistent id"),
    "a storage key that is a number": (
        b"(" + text("storage") + name("torch", "FloatStorage") + b"K\0NK\4tQ",
        "storage wrongly",
    ),
    "a negative numel": (storage(numel=-1), "storage wrongly"),
    "numel too large": (b"}" + entry("x", tensor(storage(numel=5), size=(1,))), "tensor 'x': storage '0' has 16 bytes"),
    "numel too small": (b"}" + entry("x", tensor(storage(numel=3), size=(1,))), "has 16 bytes, not 3 x 4"),
    "numel of 2**62": (b"}" + entry("x", tensor(storage(numel=2**62), size=(2**62,))), "has 16 bytes"),
    "a storage of another type": (b"}" + entry("x", tensor(storage(kind="DoubleStorage"))), "not 4 x 8"),
    "a quantised storage": (b"}" + entry("x", tensor(storage(kind="QInt8Storage"))), "'QInt8Storage', which"),
    "storage key ../x": (b"}" + entry("x", tensor(storage("../x"))), "'../x' is missing"),
    "an absolute storage key": (b"}" + entry("x", tensor(storage("/etc/passwd"))), "'/etc/passwd' is missing"),
    "a missing storage": (b"}" + entry("x", tensor(storage("7"))), "storage '7' is missing"),
    "no storage": (b"}" + entry("x", tensor(b"N")), "not in the file"),
    "a negative offset": (b"}" + entry("x", tensor(offset=-1)), "impossible offset"),
    "an offset beyond": (b"}" + entry("x", tensor(offset=1)), "reaches to byte 20 of its storage, which has 16"),
    "an offset far beyond": (b"}" + entry("x", tensor(offset=2**62, size=(1,))), "reaches to byte"),
    "a negative size": (b"}" + entry("x", tensor(size=(-4,))), "impossible"),
    "a size that is no number": (
        b"}"
        + entry("x", name("torch._utils", "_rebuild_tensor_v2") + b"(" + storage() + b"K\0" + text("4") + b")\x89NtR"),
        "impossible",
    ),
    "a negative stride": (b"}" + entry("x", tensor(offset=3, stride=(-1,))), "impossible"),
    "a long stride": (b"}" + entry("x", tensor(size=(2,), stride=(4,))), "reaches to byte 20"),
    "more sizes than strides": (b"}" + entry("x", tensor(size=(2, 2))), "impossible"),
    "65 dimensions": (b"}" + entry("x", tensor(size=(1,) * 65, stride=(1,) * 65)), "impossible"),
    "sizes that overflow": (b"}" + entry("x", tensor(size=(2**32, 2**32), stride=(0, 0))), "too large"),
    "an empty size that overflows": (b"}" + entry("x", tensor(size=(2**62, 0), stride=(1, 1))), "too large"),
    "a stride of 0 bomb": (b"}" + entry("x", tensor(size=(10**9,), stride=(0,))), "such a small file"),
    "many of them": (
        b"}" + b"".join(entry(str(i), tensor(size=(2**19 + i,), stride=(0,))) for i in range(99)),
        "such a small file",
    ),
    "a flag": (b"}" + entry("x", tensor(more=b"}" + entry("fold", b"\x88"))), "flags other than"),
    "conj of integers": (
        b"}" + entry("x", tensor(storage(kind="IntStorage"), more=b"}" + entry("conj", b"\x88"))),
        "flag conj",
    ),
    "an untyped storage": (b"}" + entry("x", tensor(storage(kind="UntypedStorage", numel=16))), "which dtype"),
    "sparse": (b"}" + entry("x", name("torch._utils", "_rebuild_sparse_tensor") + b")R"), "tensor 'x' is sparse"),
    "quantised": (b"}" + entry("x", name("torch._utils", "_rebuild_qtensor") + b")R"), "tensor 'x' is quantised"),
    "types within types": (
        name("torch._tensor", "_rebuild_from_type_v2")
        + b"("
        + name("torch.tensor", "_rebuild_from_type_v2")
        + b"N)}tR",
        "tensor wrongly",
    ),
    "two tensors of one path": (
        b"}" + entry("a/b", tensor()) + entry("a", b"}" + entry("b", tensor())),
        "two of its tensors",
    ),
    "1 and '1'": (b"}" + entry("1", tensor()) + b"K\1" + tensor() + b"s", "two of its tensors"),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("make", [torch_zip, legacy])
def test_faults_of_a_pickle(tmp_path, fault, make):
    pickle, message = FAULTS[fault]
    if make is legacy:
        message = "|".join([message, "cut off", "opcode", "does not fit its pickle", "is missing", "items instead of"])
    for mmap in (False, True):
        with pytest.raises(CheckpointError, match="file: .*(" + message.replace("*", r"\*") + ")") as caught:
            read(tmp_path, make(pickle), mmap=mmap)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 500 + len(str(tmp_path))


DEEP = 20_000
BOMBS = {  # pickles of containers that take exponential, quadratic or deep work when looked at naively
    "lists in lists, no tensor": b"]q\0" + b"".join(b"](h%ch%ceq%c" % (i, i, i + 1) for i in range(200)),
    "tuples as keys": b")q\0" + b"".join(b"h%ch%c\x86q%c" % (i, i, i + 1) for i in range(200)) + b"}h\xc8K\1s",
    "a list in itself": b"]q\0h\0ah\0a" + tensor() + b"a",
    "a dict in itself": b"}q\0" + text("me") + b"h\0s" + entry("x", tensor()),
    "deep lists": b"]" * DEEP + b"a" * (DEEP - 1),
    "deep tuples": b")" + b"\x85" * DEEP,
    "deep dicts": b"}" + b"".join([text("k") + b"}"] * DEEP) + b"s" * DEEP,
    "deep objects": b")" + (name("a", "b") + b"q\0" + b"0") + b"".join([b"h\0", b"N\x85R"] * 1000),
    "colliding keys": b"}(" + b"".join(number(k * (2**61 - 1)) + b"N" for k in range(5_000)) + b"u",
    "many marks": b"(" * DEEP + b"t" * DEEP,
}


@pytest.mark.parametrize("make", [torch_zip, legacy])
@pytest.mark.parametrize("bomb", BOMBS)
def test_bombs_without_effect(tmp_path, bomb, make):
    data = make(BOMBS[bomb])
    if make is legacy and b"FloatStorage" not in data:
        with pytest.raises(CheckpointError, match="does not fit its pickle"):  # it has a storage too many
            read(tmp_path, data)
        return
    assert all(array.tolist() == [1, 2, 3, 4] for array in read(tmp_path, data).values())


REFUSED_BOMBS = {
    "2**200 paths": tensor() + b"q\0" + b"".join(b"](h%ch%ceq%c" % (i, i, i + 1) for i in range(200)),
    "a clique of lists": b"".join(b"]q%c0" % i for i in range(40))
    + b"".join(b"h%c(" % i + b"".join(b"h%c" % j for j in range(40)) + b"e0" for i in range(40))
    + b"h\0"
    + tensor()
    + b"a",
    "long names on a deep path": text("k" * 1000)
    + b"q\0"
    + b"0"
    + tensor()
    + b"q\1"
    + b"0"
    + b"}"
    + b"h\0}" * 20_000
    + text("x")
    + b"h\1s"
    + b"s" * 20_000,
    "copies of a long list": b"]("
    + b"N" * 100_000
    + b"eq\0"
    + name("builtins", "list")
    + b"q\1"
    + b"("
    + b"h\1h\0\x85R" * 1000
    + b"t",
}


@pytest.mark.parametrize("bomb", REFUSED_BOMBS)
def test_bombs_that_are_refused(tmp_path, bomb):
    with pytest.raises(CheckpointError, match=r"such a small file|opcodes"):
        read(tmp_path, torch_zip(REFUSED_BOMBS[bomb]))


def test_a_pickle_of_too_many_opcodes(tmp_path, monkeypatch):
    monkeypatch.setattr(pickles, "MAX_OPCODES", 10_000)
    with pytest.raises(CheckpointError, match="more than 10000 opcodes"):
        read(tmp_path, torch_zip(b"N0" * 10_000 + b"N"))
    monkeypatch.setattr(pickles, "MAX_BYTES", 1000)
    with pytest.raises(CheckpointError, match="more than 1000 bytes"):
        read(tmp_path, legacy(text("x" * 1000)))


def test_an_empty_tensor_may_have_any_offset_as_in_torch(tmp_path):
    data = torch_zip(b"}" + entry("x", tensor(offset=100, size=(0, 3), stride=(3, 1))))
    assert read(tmp_path, data)["x"].shape == (0, 3)
