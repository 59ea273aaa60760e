"""What is kept with a checkpoint comes back exactly, and refuses data that does not fit."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from numpy_vit.data import digits
from numpy_vit.data import preprocessing as preprocessing_module
from numpy_vit.data.dataset import Dataset
from numpy_vit.data.preprocessing import Preprocessing
from numpy_vit.errors import DataError

GOOD = {"size": [8, 9], "channels": 2, "mean": [0.1, 0.2], "std": [0.3, 1]}


def test_digits_are_normalised_by_the_training_part():
    split = digits.load()
    preprocessing = Preprocessing.of(split.train)
    assert preprocessing.size == (8, 8)
    assert preprocessing.channels == 1
    train = preprocessing.apply(split.train.images, np.float64)
    assert abs(train.mean()) < 1e-14
    assert abs(train.std() - 1) < 1e-14
    test = preprocessing.apply(split.test.images)
    assert test.dtype == np.float32
    plain = split.train.images / 255
    expected = (split.test.images / 255 - plain.mean()) / plain.std()
    np.testing.assert_allclose(test, expected, atol=5e-7)


def test_size_is_height_then_width():
    images = np.arange(2 * 3 * 4 * 6, dtype=np.uint8).reshape(2, 3, 4, 6)
    preprocessing = Preprocessing.of(Dataset("toys", images, np.zeros(2, np.int64), ("a",)))
    assert (preprocessing.channels, preprocessing.size) == (3, (4, 6))
    with pytest.raises(DataError, match=r"\(3, 4, 6\), the data has \(3, 6, 4\)"):
        preprocessing.apply(images.transpose(0, 1, 3, 2))
    with pytest.raises(DataError, match=r"\(3, 4, 6\), the data has \(1, 4, 6\)"):
        preprocessing.check((10, 1, 4, 6))


class Elsewhere:
    """A data set that is not in memory, which counts what is taken."""

    def __init__(self, whole):
        self.whole, self.shape, self.taken = whole, whole.shape, []

    def __len__(self):
        return len(self.whole)

    def subset(self, indices):
        self.taken = [int(i) for i in indices]
        return self.whole.subset(indices)


def test_what_is_not_in_memory_is_measured_by_evenly_spaced_images(monkeypatch):
    whole = digits.load().train
    assert Preprocessing.of(Elsewhere(whole)) == Preprocessing.of(whole)
    monkeypatch.setattr(preprocessing_module, "MOST_MEASURED", 100)
    large = Elsewhere(whole)
    found = Preprocessing.of(large)
    assert len(set(large.taken)) == 100
    assert large.taken[0] == 0
    assert set(np.diff(large.taken)) == {14, 15}
    assert large.taken[-1] >= len(whole) - 15
    assert found == Preprocessing.of(whole.take(large.taken))


floats = st.floats(-10, 10)
deviations = st.floats(1e-6, 10)


@given(st.lists(st.tuples(floats, deviations), min_size=1, max_size=4), st.integers(1, 999), st.integers(1, 999))
def test_json_keeps_every_bit(statistics, height, width):
    mean, std = zip(*statistics, strict=True)
    preprocessing = Preprocessing((height, width), len(mean), mean, std)
    assert Preprocessing.from_json(json.loads(json.dumps(preprocessing.to_json()))) == preprocessing


@pytest.mark.parametrize(
    "change",
    [
        {"size": [8]},
        {"size": 8},
        {"size": [8.0, 8]},
        {"size": [8, 0]},
        {"size": [True, 8]},
        {"channels": 3},
        {"channels": "2"},
        {"channels": -1},
        {"mean": [0.1]},
        {"mean": ["0.1", 0.2]},
        {"mean": "ab"},
        {"mean": None},
        {"mean": [float("nan"), 0.2]},
        {"std": [0.3, 0]},
        {"std": [0.3, -1.0]},
        {"std": [0.3, float("inf")]},
        {"std": [0.3, True]},
        {"std": [0.3, 10**400]},
        {"std": [[0.3], 0.3]},
        {"extra": 1},
    ],
)
def test_damaged_json_is_a_data_error(change):
    assert Preprocessing.from_json(GOOD).std == (0.3, 1.0)
    with pytest.raises(DataError) as caught:
        Preprocessing.from_json({**GOOD, **change})
    assert "stored" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_keys_and_other_things_are_data_errors():
    for stored in [{}, {"size": [8, 9]}, [1, 2], None, "text"]:
        with pytest.raises(DataError, match="channels, mean, size, std"):
            Preprocessing.from_json(stored)


def test_a_constant_channel_is_named():
    images = np.zeros((2, 2, 3, 3), np.uint8)
    images[0, 0], images[:, 1] = 9, 200
    with pytest.raises(DataError, match="channel 1 of toys is 200 everywhere"):
        Preprocessing.of(Dataset("toys", images, np.zeros(2, np.int64), ("a",)))


def test_wrong_arguments_are_programming_errors():
    with pytest.raises(ValueError, match=r"\(0, 8\)"):
        Preprocessing((0, 8), 1, (0.0,), (1.0,))
    with pytest.raises(ValueError, match="2 channels"):
        Preprocessing((8, 8), 2, (0.0,), (1.0,))
