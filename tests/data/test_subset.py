"""Balanced subsets: as equal as can be, random, nested, and without decoding."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from numpy_vit.data import digits
from numpy_vit.data.streamed import StreamedDataset
from numpy_vit.data.subset import balanced, balanced_indices
from numpy_vit.errors import DataError


@given(st.lists(st.integers(0, 5), min_size=1, max_size=60), st.data())
def test_classes_are_as_equal_as_they_can_be(labels: list[int], data: st.DataObject) -> None:
    count = data.draw(st.integers(1, len(labels)))
    chosen = balanced_indices(np.array(labels), count, data.draw(st.integers(0, 5)))
    assert len(set(chosen.tolist())) == count
    assert (np.diff(chosen) > 0).all()
    there = np.bincount(labels, minlength=6)
    taken = np.bincount(np.array(labels)[chosen], minlength=6)
    unfinished = taken[taken < there]  # classes that could have given more
    assert unfinished.size == 0 or taken.max() - unfinished.min() <= 1


def test_the_subset_of_a_smaller_number_is_in_that_of_a_larger_one() -> None:
    labels = np.random.default_rng(0).integers(0, 10, 500)
    smaller: set[int] = set()
    for count in range(1, 501, 7):
        larger = set(balanced_indices(labels, count, 3).tolist())
        assert smaller < larger
        smaller = larger


def test_the_seed_decides() -> None:
    labels = np.arange(1000) % 10
    one, same, other = (balanced_indices(labels, 100, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert len(set(one.tolist()) & set(other.tolist())) < 30  # 10 by chance
    firsts = [int(labels[balanced_indices(labels, 1, seed)][0]) for seed in range(40)]
    assert len(set(firsts)) > 5  # which class gets one more is random, too


def test_the_choice_is_pinned() -> None:  # it must not change with NumPy: runs are resumed
    assert balanced_indices(np.arange(20) % 3, 6, 0).tolist() == [0, 1, 11, 12, 13, 14]


def test_in_memory_and_in_files(tmp_path: Path) -> None:
    train = digits.load().train
    part = balanced(train, 100, 0)
    assert np.bincount(part.labels).tolist() == [10] * 10
    indices = balanced_indices(train.labels, 100, 0)
    np.testing.assert_array_equal(part.take(range(100)).images, train.images[indices])
    paths = tuple(f"{i}.jpg" for i in range(len(train)))  # none of which is there
    files = StreamedDataset("x", tmp_path, paths, np.ones(len(train)), train.labels, train.class_names, (8, 8))
    chosen = balanced(files, 100, 0)
    assert isinstance(chosen, StreamedDataset)
    assert chosen.paths == tuple(f"{i}.jpg" for i in indices)


def test_more_than_there_are() -> None:
    with pytest.raises(DataError, match="digits train has 1,438 images, not 1,439"):
        balanced(digits.load().train, 1439, 0)
    with pytest.raises(ValueError, match="1 to 1,438 of these samples, not 0"):
        balanced(digits.load().train, 0, 0)
