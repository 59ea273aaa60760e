"""The idx reader against bytes made by hand, and against files that lie."""

import gzip
import hashlib
import struct
import tracemalloc

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from numpy_vit.data.idx import IMAGES, LABELS, read_idx, write_idx
from numpy_vit.errors import DataError

TWO_IMAGES = bytes.fromhex("00000803 00000002 00000002 00000003 000102030405 fffefdfcfbfa")
FOUR_LABELS = bytes.fromhex("00000801 00000004 07020109")
same_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def message(path, magic=None):
    with pytest.raises(DataError) as caught:
        read_idx(path, magic)
    text = str(caught.value)
    assert str(path) in text
    assert "\n" not in text
    return text


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_hand_made_files(tmp_path, pack):
    path = tmp_path / "any name.png"  # the content decides, not the name
    path.write_bytes(pack(TWO_IMAGES))
    images = read_idx(path, IMAGES)
    assert images.dtype == np.uint8
    assert images.tolist() == [[[0, 1, 2], [3, 4, 5]], [[255, 254, 253], [252, 251, 250]]]
    path.write_bytes(pack(FOUR_LABELS))
    assert read_idx(path).tolist() == [7, 2, 1, 9]


def header(*numbers):
    return struct.pack(f">{len(numbers)}I", *numbers)


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\x89PNG\r\n\x1a\n" + bytes(64), "not an idx file"),
        (header(0x0D03, 1, 1, 1) + bytes(4), "not an idx file of bytes"),  # 32-bit floats
        (header(0x0802, 2, 2) + bytes(4), "declares 2 dimensions"),
        (header(0x0804, 1, 1, 2, 2) + bytes(4), "declares 4 dimensions"),
        (b"", "truncated: 0 bytes"),
        (b"\0\0\x08", "truncated: 3 bytes"),
        (TWO_IMAGES[:9], "ends within the idx header"),
        (TWO_IMAGES[:-1], "truncated"),
        (TWO_IMAGES + b"\0", "bytes beyond the 12"),
        (header(IMAGES, 0, 28, 28), "empty shape (0, 28, 28)"),
        (header(IMAGES, 2**32 - 1, 2**32 - 1, 2**32 - 1) + bytes(50), "79228162458924105385300197375 bytes"),
        (header(LABELS, 2**32 - 1) + bytes(50), "4294967295 bytes"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, pack, content, words):
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(pack(content))
    assert words in message(path)


def test_swapped_files(tmp_path):
    path = tmp_path / "images"
    path.write_bytes(FOUR_LABELS)
    assert "holds labels (magic 2049) where images (magic 2051)" in message(path, IMAGES)
    path.write_bytes(TWO_IMAGES)
    assert "holds images (magic 2051) where labels (magic 2049)" in message(path, LABELS)


def test_unreadable_files(tmp_path):
    assert "cannot be read (No such file" in message(tmp_path / "nothing")
    assert "cannot be read" in message(tmp_path)
    path = tmp_path / "broken.gz"
    packed = gzip.compress(TWO_IMAGES)
    path.write_bytes(packed[:-10])
    assert "damaged gzip" in message(path)
    path.write_bytes(packed[:-8] + bytes(4) + packed[-4:])  # the checksum is read too
    assert "damaged gzip" in message(path)
    path.write_bytes(packed[:10] + b"\xff" * 8 + packed[18:])  # no such block type
    assert "damaged gzip" in message(path)


def peak_of_reading(path):
    tracemalloc.start()
    try:
        message(path)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_is_bounded_by_what_the_file_holds(tmp_path):
    path = tmp_path / "bomb"
    path.write_bytes(gzip.compress(header(IMAGES, 10, 28, 28) + bytes(300_000_000), 9))
    assert peak_of_reading(path) < 4_000_000  # stops at one byte more than declared
    path.write_bytes(header(IMAGES, 100_000, 1000, 1000) + bytes(100))
    assert peak_of_reading(path) < 1_000_000
    noise = np.random.default_rng(0).bytes(1_000_000)  # a header within deflate's factor, and a file without it
    path.write_bytes(gzip.compress(header(IMAGES, 1000, 1000, 1000) + noise))
    assert peak_of_reading(path) < 6_000_000


@same_folder
@given(data=st.data(), packed=st.booleans())
def test_mutations_give_data_errors_only(tmp_path, data, packed):
    content = bytearray(gzip.compress(TWO_IMAGES, mtime=0) if packed else TWO_IMAGES)
    for _ in range(data.draw(st.integers(1, 4))):
        kind = data.draw(st.sampled_from(["byte", "cut", "insert"]))
        at = data.draw(st.integers(0, max(0, len(content) - 1)))
        if kind == "cut":
            del content[at:]
        elif kind == "insert":
            content[at:at] = data.draw(st.binary(min_size=1, max_size=8))
        elif content:
            content[at] = data.draw(st.integers(0, 255))
    path = tmp_path / "mutant"
    path.write_bytes(content)
    try:
        array = read_idx(path)
    except DataError as error:
        assert str(path) in str(error)
        assert "\n" not in str(error)
    else:
        assert array.size <= 1032 * len(content)


@same_folder
@given(content=st.binary(max_size=200), start=st.sampled_from([b"", b"\x1f\x8b\x08", b"\0\0\x08\x03", b"\0\0\x08\x01"]))
def test_arbitrary_bytes_give_data_errors_only(tmp_path, content, start):
    path = tmp_path / "noise"
    path.write_bytes(start + content)
    try:
        read_idx(path)
    except DataError as error:
        assert str(path) in str(error)


@same_folder
@given(array=hnp.arrays(np.uint8, st.one_of(st.tuples(st.integers(1, 9)), st.tuples(*[st.integers(1, 5)] * 3))))
def test_written_files_read_back(tmp_path, array):
    path = tmp_path / "array.gz"
    write_idx(path, array)
    read = read_idx(path)
    assert read.shape == array.shape
    np.testing.assert_array_equal(read, array)


def test_written_bytes(tmp_path):
    first, second = tmp_path / "first.gz", tmp_path / "second.gz"
    images = np.frombuffer(TWO_IMAGES[16:], np.uint8).reshape(2, 2, 3)
    write_idx(first, images)
    write_idx(second, images[:, ::-1].copy()[:, ::-1])  # strides do not matter
    assert gzip.decompress(first.read_bytes()) == TWO_IMAGES
    assert hashlib.sha256(first.read_bytes()).digest() == hashlib.sha256(second.read_bytes()).digest()
    assert first.read_bytes()[3:8] == bytes(5)  # no flags, so no name, and time 0


def test_what_cannot_be_written(tmp_path):
    with pytest.raises(TypeError, match="float64"):
        write_idx(tmp_path / "x", np.zeros(3))
    for shape in [(2, 2), (0, 2, 2), ()]:
        with pytest.raises(ValueError, match=r"not \("):
            write_idx(tmp_path / "x", np.zeros(shape, np.uint8))
    assert not list(tmp_path.iterdir())
