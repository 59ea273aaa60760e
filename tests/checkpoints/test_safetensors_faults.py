"""What the safetensors reader refuses, case by case and by fuzzing; the reference must agree."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from numpy_vit.checkpoints import safetensors
from numpy_vit.errors import CheckpointError


def build(header, data=b"", length=None):
    """The bytes of a file with this header (a dict, or text to be taken as it is)."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def entry(dtype="F32", shape=(2,), offsets=(0, 8)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


F = np.zeros(2, "<f4").tobytes()
X = b'"dtype":"F32","shape":[2],"data_offsets":[0,8]'
ACCEPTED = {
    "no tensors": build({}),
    "metadata null": build({"__metadata__": None, "x": entry()}, F),
    "spaces and a newline around": build(b" " + json.dumps({"x": entry()}).encode() + b" \n", F),
    "an unknown field": build({"x": entry() | {"more": [1.5]}}, F),
    "order of the header is not that of the data": build(
        {"y": entry("U8", [1], [8, 9]), "x": entry(), "e": entry("F32", [0], [8, 8])}, F + b"1"
    ),
}
REFUSED = {
    "nothing": (b"", "it has 0 bytes"),
    "7 bytes": (b"\0" * 7, "it has 7 bytes"),
    "no header": (build(b""), "Expecting value"),
    "header beyond the file": (build({}, length=3), "claims 3 bytes, the file has 10"),
    "header beyond the limit": (build({}, length=100_000_001), "at most 100000000"),
    "largest length": (b"\xff" * 8 + b"{}", "at most 100000000"),
    "not UTF-8": (build(b'{"\xff": 1}'), "utf-8"),
    "lone surrogate": (build(b'{"\\ud800":{%b}}' % X, F), "surrogates"),
    "lone surrogate in the metadata": (build(b'{"__metadata__":{"a":"\\ud800"}}'), "surrogates"),
    "an array": (build(b"[]"), "not a JSON object"),
    "garbage after the JSON": (build(b"{}x"), "Extra data"),
    "NUL after the JSON": (build(b"{}\0"), "Extra data"),
    "NaN": (build(b'{"x":NaN}'), "has a NaN"),
    "deep nesting": (build(b"[" * 200_000), "nests too deep"),
    "a huge number": (build(b'{"x":' + b"9" * 5000 + b"}"), "safetensors file"),
    "a name twice": (build(b'{"x":{%b},"x":{%b}}' % (X, X), F), "'x' occurs twice"),
    "a field twice": (build(b'{"x":{"dtype":"F32",%b}}' % X, F), "'dtype' occurs twice"),
    "metadata twice": (build(b'{"__metadata__":{},"__metadata__":{}}'), "occurs twice"),
    "metadata a list": (build({"__metadata__": []}), "metadata"),
    "metadata a number": (build({"__metadata__": {"a": 1}}), "metadata"),
    "entry a list": (build({"x": ["F32", [2], [0, 8]]}, F), "'x' is not a JSON object"),
    "no dtype": (build({"x": {"shape": [2], "data_offsets": [0, 8]}}, F), "has no dtype"),
    "no shape": (build({"x": {"dtype": "F32", "data_offsets": [0, 8]}}, F), "has no shape"),
    "no offsets": (build({"x": {"dtype": "F32", "shape": [2]}}, F), "has no data_offsets"),
    "unknown dtype": (build({"x": entry("F31")}, F), "dtype 'F31'"),
    "lower-case dtype": (build({"x": entry("f32")}, F), "dtype 'f32'"),
    "dtype a list": (build({"x": entry() | {"dtype": ["F32"]}}, F), "dtype"),
    "negative size": (build({"x": entry(shape=[-2])}, F), "shape"),
    "float size": (build({"x": entry(shape=[2.0])}, F), "shape"),
    "true as a size": (build({"x": entry(shape=[True, 2])}, F), "shape"),
    "shape a number": (build({"x": entry() | {"shape": 2}}, F), "shape"),
    "65 dimensions": (build({"x": entry(shape=[1] * 64 + [2])}, F), "64 sizes"),
    "negative offset": (build({"x": entry(offsets=[-8, 0])}, F), "data_offsets"),
    "float offset": (build({"x": entry(offsets=[0, 8.0])}, F), "data_offsets"),
    "true as an offset": (build({"x": entry("U8", [0], [False, False])}), "data_offsets"),
    "three offsets": (build({"x": entry(offsets=[0, 8, 8])}, F), "data_offsets"),
    "begin after end": (build({"x": entry(offsets=[8, 0])}, F), "data_offsets"),
    "end beyond the file": (build({"x": entry(shape=[3], offsets=[0, 12])}, F), "the data end at 8"),
    "size overflow": (build({"x": entry(shape=[2**62, 2**62])}, F), "not those of F32"),
    "empty but huge": (build({"x": entry(shape=[2**62, 0], offsets=[0, 0])}), "too large"),
    "bytes too few": (build({"x": entry(shape=[3])}, F), "has 8 bytes"),
    "bytes too many": (build({"x": entry(shape=[1])}, F), "has 8 bytes"),
    "overlap": (build({"x": entry(), "y": entry(offsets=[4, 12])}, F + b"1234"), "overlaps"),
    "equal ranges": (build({"x": entry(), "y": entry()}, F), "overlaps"),
    "hole": (build({"x": entry(), "y": entry(offsets=[12, 20])}, F + b"1234" + F), "hole"),
    "hole in front": (build({"x": entry(offsets=[4, 12])}, b"1234" + F), "hole"),
    "bytes after the last": (build({"x": entry()}, F + b"1"), "tensors end at byte"),
    "data without tensors": (build({}, F), "tensors end at byte"),
}  # fmt: skip


# What we refuse and the reference lets pass: its text forbids the first, NumPy has no array for the last two.
STRICTER = {"a name twice", "entry a list", "65 dimensions", "empty but huge"}


@pytest.mark.parametrize("case", ACCEPTED)
def test_accepts(tmp_path, case):
    path = tmp_path / "file"
    path.write_bytes(ACCEPTED[case])
    tensors, _ = safetensors.read(path)
    assert ("x" in tensors) == (case != "no tensors")


@pytest.mark.parametrize("case", REFUSED)
def test_refuses(tmp_path, case):
    path = tmp_path / "file"
    path.write_bytes(REFUSED[case][0])
    with pytest.raises(CheckpointError) as caught:
        safetensors.read(path)
    text = str(caught.value)
    assert text.startswith(str(path)) and REFUSED[case][1] in text
    assert "\n" not in text and len(text) < 500


def test_missing_file_and_folder(tmp_path):
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(CheckpointError, match="cannot be read"):
            safetensors.read(path)


def test_every_truncation_is_refused(tmp_path):
    path = tmp_path / "file"
    safetensors.write(path, {"a": np.arange(3.0), "b": np.ones(2, np.int8)}, {"k": "v"})
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(CheckpointError):
            safetensors.read(path)


VALID = build(
    {
        "__metadata__": {"format": "pt"},
        "a": entry("F32", [2, 2], [0, 16]),
        "b": entry("BF16", [3], [16, 22]),
        "c": entry("BOOL", [2], [22, 24]),
        "d": entry("F8_E4M3", [], [24, 25]),
        "e": entry("I64", [0, 3], [25, 25]),
    },
    bytes(range(25)),
)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    edits=st.lists(
        st.tuples(st.integers(0, len(VALID) - 1), st.sampled_from(["set", "insert", "delete"]), st.integers(0, 255)),
        min_size=1,
        max_size=6,
    )
)  # fmt: skip
def test_mutated_bytes_raise_nothing_else(tmp_path, edits):
    raw = bytearray(VALID)
    for position, kind, byte in edits:
        position = min(position, len(raw))
        if kind == "insert":
            raw.insert(position, byte)
        else:
            raw[position : position + 1] = bytes([byte]) if kind == "set" else b""
    check_file(tmp_path, bytes(raw))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 2**70) | st.floats() | st.text(max_size=3)
    | st.sampled_from(["F32", "U8"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    fields=st.dictionaries(st.sampled_from(["dtype", "shape", "data_offsets"]), JSON),
    name=st.text(max_size=3) | st.just("__metadata__"),
    data=st.binary(max_size=20),
)
def test_strange_headers_raise_nothing_else(tmp_path, fields, name, data):
    check_file(tmp_path, build({name: entry() | fields}, data))


def check_file(folder, raw):
    path = folder / "file"
    path.write_bytes(raw)
    try:
        tensors, metadata = safetensors.read(path)
    except CheckpointError as error:
        assert "\n" not in str(error)
        return
    assert sum(array.nbytes for array in tensors.values()) <= 4 * len(raw)
    assert all(isinstance(text, str) for pair in metadata.items() for text in pair)


@pytest.mark.framework
@pytest.mark.parametrize("case", [*ACCEPTED, *REFUSED])
def test_reference_agrees_on_what_is_valid(tmp_path, case):
    reference = pytest.importorskip("safetensors")
    numpy_side = pytest.importorskip("safetensors.numpy")
    path = tmp_path / "file"
    path.write_bytes(ACCEPTED.get(case) or REFUSED[case][0])
    if case in ACCEPTED:
        numpy_side.load_file(path)
    elif case in STRICTER:
        reference.safe_open(path, "np")
    else:
        with pytest.raises(reference.SafetensorError):
            reference.safe_open(path, "np")
