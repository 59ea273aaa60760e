"""Data sets are checked when made; their statistics equal the plain formula."""

import tracemalloc
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from numpy_vit.data import digits
from numpy_vit.data.dataset import Dataset, Split, pieces, statistics
from numpy_vit.errors import DataError


def dataset(n=4, labels=(0, 1, 2, 1), names=("a", "b", "c"), shape=(2, 3, 5), name="toys"):
    images = np.arange(n * np.prod(shape), dtype=np.int64).astype(np.uint8).reshape(n, *shape)
    return Dataset(name, images, np.array(labels, np.int64), names)


def test_take_keeps_order_pairs_and_repeats():
    whole = dataset()
    part = whole.take([3, 0, 3])
    assert len(part) == 3
    assert part.labels.tolist() == [1, 0, 1]
    for row, index in enumerate([3, 0, 3]):
        np.testing.assert_array_equal(part.images[row], whole.images[index])
    part.images[:] = 0
    np.testing.assert_array_equal(whole.images, dataset().images)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"labels": (0, 1, 2)}, ["4 images", "3 labels"]),
        ({"labels": (0, 1, 3, 1)}, ["label 3", "3 classes", "0 to 2"]),
        ({"labels": (0, -1, 2, 1)}, ["label -1", "3 classes"]),
        ({"n": 0, "labels": ()}, ["empty", "(0, 2, 3, 5)"]),
        ({"shape": (1, 0, 4)}, ["empty", "(4, 1, 0, 4)"]),
    ],
)
def test_wrong_data_is_named(arguments, words):
    with pytest.raises(DataError) as caught:
        dataset(**arguments)
    text = str(caught.value)
    assert all(word in text for word in ["toys", *words]), text
    assert "\n" not in text


def test_wrong_arrays_are_programming_errors():
    good = dataset()
    with pytest.raises(TypeError, match="float64"):
        Dataset("toys", good.images / 255, good.labels, good.class_names)
    with pytest.raises(TypeError, match="uint8 and labels int64"):
        Dataset("toys", good.images, good.labels.astype(np.uint8), good.class_names)
    with pytest.raises(ValueError, match=r"\(4, 3, 5\)"):
        Dataset("toys", good.images[:, 0], good.labels, good.class_names)
    with pytest.raises(DataError, match="4 samples"):
        good.take([])
    with pytest.raises(IndexError):
        good.take([4])


def test_parts_of_a_split_must_agree():
    with pytest.raises(DataError, match=r"train .*\(2, 3, 5\) and test of \(1, 3, 5\)"):
        Split(dataset(name="train"), dataset(name="test", shape=(1, 3, 5)))
    with pytest.raises(DataError, match="different classes"):
        Split(dataset(name="train"), dataset(name="test", names=("a", "c", "b")))


@given(
    hnp.arrays(
        np.uint8,
        st.tuples(st.integers(1, 5), st.integers(1, 3), st.integers(1, 4), st.integers(1, 6)),
    )
)
def test_statistics_equal_the_plain_formula(images):
    mean, std = statistics(images)
    plain = images.astype(np.float64) / 255
    np.testing.assert_allclose(mean, plain.mean(axis=(0, 2, 3)), rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(std, plain.std(axis=(0, 2, 3)), rtol=1e-12, atol=1e-14)


def test_shape_fingerprint_and_pieces():
    whole = dataset()
    assert whole.shape == (2, 3, 5)
    assert len(whole) == 4
    crc = zlib.crc32(whole.labels.tobytes(), zlib.crc32(whole.images.tobytes(), 5))
    assert whole.fingerprint(5) == crc
    assert whole.take(range(4)).fingerprint() == whole.fingerprint() != whole.take([1, 0, 2, 3]).fingerprint()
    cut = list(pieces(whole, 3))
    assert [len(piece) for piece in cut] == [3, 1]
    np.testing.assert_array_equal(np.concatenate([piece.images for piece in cut]), whole.images)
    np.testing.assert_array_equal(whole.subset([2, 0]).images, whole.images[[2, 0]])
    with pytest.raises(ValueError, match="at least 1 sample, not 0"):
        pieces(whole, 0)


def test_the_embedded_digits_keep_the_fingerprint_that_stored_runs_have():
    data = digits.load()
    assert f"{data.test.fingerprint(data.train.fingerprint()):08x}" == "d99f4b30"


def test_statistics_of_several_chunks_and_a_strided_view():
    images = np.random.default_rng(0).integers(0, 256, (50, 200, 230, 3), np.uint8).transpose(0, 3, 1, 2)
    mean, std = statistics(images)
    # One channel at a time and contiguous: NumPy then sums pairwise; over outer axes its own error is 2e-12.
    channels = [np.ascontiguousarray(images[:, channel]).ravel() / 255 for channel in range(3)]
    np.testing.assert_allclose(mean, [channel.mean() for channel in channels], rtol=1e-14)
    np.testing.assert_allclose(std, [channel.std() for channel in channels], rtol=1e-14)


def test_a_constant_channel_deviates_by_exactly_nothing():
    mean, std = statistics(np.full((7, 1, 3, 3), 77, np.uint8))
    assert mean == (77 / 255,)
    assert std == (0.0,)


def test_statistics_make_no_float_copy():
    images = np.zeros((60_000, 1, 28, 28), np.uint8)
    tracemalloc.start()
    statistics(images)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < images.nbytes / 4  # a float64 copy would be 8 times the bytes
