"""Damaged and hostile archives, npz and legacy files, indices, and files that are no checkpoints at all."""

from __future__ import annotations

import io
import json
import os
import struct
import time
import tracemalloc
import zipfile
import zlib

import numpy as np
import pytest

from numpy_vit.checkpoints import read_tensors
from numpy_vit.errors import CheckpointError

FLOATS = np.arange(1, 5, dtype="<f4").tobytes()
GOOD = (  # {"x": tensor of the four numbers in storage "0"}
    b"}X\1\0\0\0xctorch._utils\n_rebuild_tensor_v2\n((X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0"
    b"0X\3\0\0\0cpuK\4tQK\0K\4\x85K\1\x85\x89NtRs"
)
ONE, OTHER = b"X\1\0\0\0" + b"0", b"X\1\0\0\0" + b"1"  # storage keys
MAGIC = b"\x80\2\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."


def torch_zip(pickle, data=FLOATS, method=zipfile.ZIP_STORED, **members):
    return zip_of({"a/data.pkl": b"\x80\2" + pickle + b".", "a/data/0": data, **members}, method)


def zip_of(members, method=zipfile.ZIP_STORED):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for key, value in members.items():
            archive.writestr(key, value)
    return file.getvalue()


def legacy(pickle, keys=b"](" + ONE + b"e", count=4, data=FLOATS):
    pickles = [b"\x80\2" + part + b"." for part in (b"M\xe9\x03", b"}", pickle, keys)]
    return b"".join([MAGIC, *pickles, count.to_bytes(8, "little", signed=True), data])


def read(tmp_path, data):
    """Read, within 64 MB and 10 seconds."""
    path = tmp_path / "file"
    path.write_bytes(data)
    tracemalloc.start()
    start = time.perf_counter()
    try:
        return read_tensors(path)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 64 << 20
        assert time.perf_counter() - start < 10


def duplicated():
    file = io.BytesIO(ZIP)
    with zipfile.ZipFile(file, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("a/data/0", FLOATS)
    return file.getvalue()


def patched(data, old, new, last=False):
    at = data.rfind(old) if last else data.find(old)
    return data[:at] + new + data[at + len(old) :]


def npy(header, data=FLOATS):
    header = header.encode().ljust(118) + b"\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header + data


def npz(method=zipfile.ZIP_STORED, **arrays):
    return zip_of({f"{key}.npy": value for key, value in arrays.items()}, method)


def head(descr="'<f4'", order="False", shape="(4,)"):
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}"


def overlapping():
    """A small deflated member to which many directory entries point."""
    data = npz(zipfile.ZIP_DEFLATED, a=npy(head("'|u1'", shape="(100000,)"), bytes(100_000)))
    at, end = data.index(b"PK\1\2"), data.index(b"PK\5\6")
    one = data[at:end]
    entries = b"".join(one.replace(b"a.npy", b"%c.npy" % c) for c in range(97, 123))
    return data[:at] + entries + struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 26, 26, len(entries), at, 0)


ZIP = torch_zip(GOOD)
DEFLATED = npz(zipfile.ZIP_DEFLATED, a=npy(head("'|u1'", shape="(100000,)"), bytes(100_000)))
CONTAINERS = {
    "cut off": (lambda: ZIP[:-30], "directory is missing"),
    "only its magic": (lambda: b"PK\3\4", "directory is missing"),
    "a name twice": (duplicated, "'a/data/0' twice"),
    "members that overlap": (overlapping, "overlap"),
    "a damaged storage": (lambda: patched(ZIP, FLOATS, FLOATS[::-1]), "does not have its checksum"),
    "a damaged pickle": (lambda: patched(ZIP, b"cpu", b"gpu"), "checksum"),
    "a deflated torch file": (lambda: torch_zip(GOOD, method=zipfile.ZIP_DEFLATED), "is compressed"),
    "a deflated bomb": (lambda: torch_zip(GOOD, bytes(10**6), method=zipfile.ZIP_DEFLATED), "is compressed"),
    "a byte order": (lambda: torch_zip(GOOD, **{"a/byteorder": b"middle"}), "byte order is b'middle'"),
    "another packing": (lambda: npz(zipfile.ZIP_BZIP2, a=npy(head())), "packed by method 12"),
    "claims no members": (lambda: ZIP[:-22] + ZIP[-22:-14] + bytes(4) + ZIP[-10:], "more than the 0 members"),
    "claims no directory": (lambda: ZIP[:-22] + ZIP[-22:-14] + bytes(8) + ZIP[-6:], "without a torch file's data.pkl"),
    "no tensors at all": (lambda: zip_of({"readme.txt": b"x"}), "without a torch file's data.pkl"),
    "claims a terabyte": (lambda: resized(DEFLATED, 2**31), "claims to unpack"),
    "claims less": (lambda: resized(DEFLATED, 1000), "more than its 1000 bytes"),
    "claims more": (lambda: resized(DEFLATED, 100_200), "instead of 100200"),
    "a deflated checksum": (
        lambda: patched(DEFLATED, crc(DEFLATED), b"abcd", last=True),
        "checksum",
    ),
    "objects": (lambda: npz(a=npy(head("'|O'"))), "array 'a': its items are Python objects"),
    "single bytes": (lambda: npz(a=npy(head("'|V1'", shape="(16,)"))), "fp8"),
    "long doubles": (lambda: npz(a=npy(head("'<f16'"))), "dtype '<f16'"),
    "a nonsense dtype": (lambda: npz(a=npy(head("'zzz'"))), "dtype 'zzz'"),
    "code for a header": (lambda: npz(a=npy("__import__('os').system('touch ran')")), "not understood"),
    "code in a header": (lambda: npz(a=npy(head(shape="(4 * 10**9,)"))), "not understood"),
    "deep nesting": (lambda: npz(a=npy("(" * 5000)), "not understood"),
    "a shape too large": (lambda: npz(a=npy(head(shape="(5,)"))), "has 16 bytes of items"),
    "a shape too small": (lambda: npz(a=npy(head(shape="(3,)"))), "has 16 bytes of items"),
    "a huge shape": (lambda: npz(a=npy(head(shape="(9999999999999999999, 9999999999999999999)"))), "16 bytes of items"),
    "a huge empty shape": (lambda: npz(a=npy(head(shape="(9999999999999999999, 0)"), b"")), "has 0 bytes of items"),
    "no npy": (lambda: npz(a=b"hello"), "does not begin as a .npy"),
    "a header beyond": (lambda: npz(a=b"\x93NUMPY\2\0" + b"\xff" * 8), "claims 4294967295 bytes"),
    "npy objects": (lambda: npy(head("'|O'")), "its items are Python objects"),
    "npy texts": (lambda: npy(head("'<U1'")), "its items are texts"),
    "npy cut off": (lambda: npy(head(), FLOATS[:-1]), "15 bytes of items"),
    "empty": (lambda: b"", "it is empty"),
    "tar": (lambda: b"x".ljust(257, b"\0") + b"ustar\0" + bytes(300), "tar archive; unpack"),
    "HDF5": (lambda: b"\x89HDF\r\n\x1a\n" + bytes(100), "HDF5 file .Keras.; load it with Keras"),
    "gzip": (lambda: b"\x1f\x8b" + bytes(100), "gzip; unpack"),
    "git-lfs": (lambda: b"version https://git-lfs.github.com/spec/v1\noid sha256:", "git lfs pull"),
    "a web page": (lambda: b"\n<!DOCTYPE html>", "web page"),
    "a bare pickle": (lambda: b"\x80\4N.", "pickle that torch.save did not write"),
    "noise": (lambda: bytes(range(100, 200)), "format is not known"),
    "legacy, cut in its magic": (lambda: MAGIC[:-1], "cut off"),
    "legacy, another protocol": (lambda: MAGIC + b"\x80\2M\xe8\x03.", "protocol is 1000"),
    "legacy, no storages": (lambda: legacy(GOOD, b"]"), "'0' is missing"),
    "legacy, keys that are no list": (lambda: legacy(GOOD, b"K\1"), "no list of its storages"),
    "legacy, a key twice": (lambda: legacy(GOOD, b"](" + ONE + ONE + b"e"), "does not fit"),
    "legacy, an unknown key": (lambda: legacy(GOOD, b"](" + OTHER + b"e"), "does not fit"),
    "legacy, another count": (lambda: legacy(GOOD, count=3), "has 3 items instead of 4"),
    "legacy, a negative count": (lambda: legacy(GOOD, count=-1), "items instead of 4"),
    "legacy, cut in its storage": (lambda: legacy(GOOD)[:-1], "'0' is cut off"),
    "legacy, cut in the count": (lambda: legacy(GOOD)[:-20], "it ends at byte"),
    "legacy, a view beyond": (lambda: legacy(GOOD.replace(b"tQ", b"(" + OTHER + b"K\2K\3ttQ")), "view beyond"),
    "JSON": (lambda: b'{"a": 1}', "without a weight_map"),
    "JSON of a list": (lambda: b'{"weight_map": ["a"]}', "without a weight_map"),
    "broken JSON": (lambda: b'{"weight_map"', "not valid JSON"),
    "deep JSON": (lambda: b'{"a":' * 100_000, "not valid JSON"),
}


def crc(data):
    return struct.pack("<I", zipfile.ZipFile(io.BytesIO(data)).infolist()[0].CRC)


def resized(data, size):
    at = data.index(b"PK\1\2") + 24
    return data[:at] + struct.pack("<I", size) + data[at + 4 :]


@pytest.mark.parametrize("case", CONTAINERS)
def test_faults_of_a_container(tmp_path, monkeypatch, case):
    monkeypatch.chdir(tmp_path)
    make, message = CONTAINERS[case]
    with pytest.raises(CheckpointError, match=f"file: .*{message}"):
        read(tmp_path, make())
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("file", ["../x", "/etc/passwd", "a\\b", "", "..", "C:x", "missing"])
def test_an_index_lists_files_of_its_own_folder(tmp_path, file):
    with pytest.raises(CheckpointError, match=r"its (index lists|part)"):
        read(tmp_path, json.dumps({"weight_map": {"a": file}}).encode())


def test_an_index_that_does_not_fit_its_parts(tmp_path):
    (tmp_path / "part").write_bytes(torch_zip(GOOD))
    unlisted = {"y": "part"}, "'x', which the index does not list"
    lacking = {"x": "part", "y": "part"}, "lacks the tensor 'y'"
    for files, message in (unlisted, lacking):
        with pytest.raises(CheckpointError, match=message):
            read(tmp_path, json.dumps({"weight_map": files}).encode())
    with pytest.raises(CheckpointError, match="its part 'file': its format is not known"):
        read(tmp_path, b'{"weight_map": {"x": "file"}}')


def test_a_view_of_a_storage_as_very_old_files_have_them(tmp_path):
    part = GOOD.replace(b"tQ", b"(" + OTHER + b"K\1K\2ttQ").replace(b"K\4\x85", b"K\2\x85")
    assert read(tmp_path, legacy(part))["x"].tolist() == [2, 3]


def test_a_checksum_of_0_was_not_computed(tmp_path):
    data = ZIP
    for member in zipfile.ZipFile(io.BytesIO(ZIP)).infolist():
        data = data.replace(struct.pack("<I", member.CRC), bytes(4))
    assert zlib.crc32(FLOATS)
    assert read(tmp_path, data)["x"].tolist() == [1, 2, 3, 4]


def test_missing_files_and_folders(tmp_path):
    with pytest.raises(CheckpointError, match="nothing: cannot be read: No such file"):
        read_tensors(tmp_path / "nothing")
    with pytest.raises(CheckpointError, match="a folder or a device"):
        read_tensors(tmp_path)
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(CheckpointError, match="a folder or a device"):
            read_tensors(tmp_path / "pipe")
