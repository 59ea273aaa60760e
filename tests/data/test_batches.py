"""Every sample exactly once an epoch, in an order that can be resumed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from numpy_vit.data.batches import batch_count, epoch_batches, order


@given(st.integers(1, 200), st.integers(1, 60), st.integers(0, 2**40), st.integers(0, 1000))
def test_every_sample_exactly_once(n, batch_size, seed, epoch):
    batches = list(epoch_batches(n, batch_size, seed, epoch))
    assert sorted(np.concatenate(batches).tolist()) == list(range(n))
    assert all(len(batch) == batch_size for batch in batches[:-1])
    assert 1 <= len(batches[-1]) <= batch_size
    assert len(batches) == batch_count(n, batch_size)
    assert all(batch.dtype == np.int64 for batch in batches)


@given(st.integers(1, 100), st.integers(1, 30), st.data())
def test_resuming_gives_the_remaining_batches(n, batch_size, data):
    whole = list(epoch_batches(n, batch_size, 3, 5))
    start = data.draw(st.integers(0, len(whole)))
    rest = list(epoch_batches(n, batch_size, 3, 5, start))
    assert [batch.tolist() for batch in rest] == [batch.tolist() for batch in whole[start:]]


def test_order_depends_on_seed_and_epoch_only():
    orders = {tuple(order(50, seed, epoch)) for seed in range(4) for epoch in range(4)}
    assert len(orders) == 16
    np.testing.assert_array_equal(order(50, 2, 3), order(50, 2, 3))
    np.testing.assert_array_equal(np.concatenate(list(epoch_batches(50, 7, 2, 3))), order(50, 2, 3))


def test_order_never_changes():
    # The ranks of Philox's first raw words; a change here would break the resuming of every run.
    assert order(10, 0, 0).tolist() == [0, 1, 9, 6, 5, 3, 7, 8, 2, 4]


def test_order_is_uniform():
    counts = np.zeros((4, 4))
    for seed in range(4000):
        counts[np.arange(4), order(4, seed, 0)] += 1
    assert np.abs(counts - 1000).max() < 140  # five standard deviations


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((10, 0, 0, 0), "10 and 0"),
        ((0, 4, 0, 0), "0 and 4"),
        ((10, 4, 0, 0, 4), r"0 \.\. 3.*not 4"),
        ((10, 4, 0, 0, -1), "not -1"),
        ((10, 4, -5, 0), "seed .*not -5"),
        ((10, 4, 0, -2), "epoch .*not -2"),
    ],
)
def test_wrong_numbers_are_refused_at_the_call(arguments, words):
    with pytest.raises(ValueError, match=words):
        epoch_batches(*arguments)
