"""Every sample exactly once an epoch, in an order that can be resumed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from numpy_vit.data.batches import batch_count, epoch_batches, order, repeated_batches


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


def draws(n, batch_size, seed, epoch, repeats, start=0):
    """Return an epoch's (index, copy) pairs in their order."""
    batches = list(repeated_batches(n, batch_size, seed, epoch, repeats, start))
    return [pair for indices, copies in batches for pair in zip(indices.tolist(), copies.tolist(), strict=True)]


@given(st.integers(1, 60), st.integers(1, 20), st.integers(1, 7), st.integers(0, 2**40), st.integers(0, 30))
def test_every_sample_comes_equally_often(n, batch_size, repeats, seed, epochs):
    counts = np.zeros(n, int)
    for epoch in range(epochs % (2 * repeats + 2)):
        pairs = draws(n, batch_size, seed, epoch, repeats)
        assert len(pairs) == n
        assert len(set(pairs)) == n  # no copy comes twice
        assert len({index for index, _ in pairs}) in (-(-n // repeats), -(-n // repeats) + 1)
        np.add.at(counts, [index for index, _ in pairs], 1)
        assert np.ptp(counts) <= repeats
        if (epoch + 1) % repeats == 0:
            assert (counts == epoch + 1).all()


@given(st.integers(1, 20), st.integers(1, 5), st.integers(1, 5))
def test_copies_share_a_batch_where_they_can(groups, repeats, sets):
    n = groups * repeats
    for indices, copies in repeated_batches(n, sets * repeats, 1, 4, repeats):
        assert indices.dtype == copies.dtype == np.int64
        np.testing.assert_array_equal(indices.reshape(-1, repeats), np.repeat(indices[::repeats, None], repeats, 1))
        np.testing.assert_array_equal(
            copies.reshape(-1, repeats), np.tile(np.arange(repeats), (len(indices) // repeats, 1))
        )
    assert len({index for index, _ in draws(n, sets * repeats, 1, 4, repeats)}) == groups


@given(st.integers(1, 60), st.integers(1, 4), st.integers(1, 5), st.integers(0, 8))
def test_whole_sets_share_a_batch_whatever_the_number_of_samples(n, sets, repeats, epoch):
    together = 0
    for indices, copies in repeated_batches(n, sets * repeats, 1, epoch, repeats):
        for index in set(indices.tolist()):
            together += copies[indices == index].tolist() == list(range(repeats))
    pairs = draws(n, sets * repeats, 1, epoch, repeats)
    assert together == sum(sum(index == other for other, _ in pairs) == repeats for index in {i for i, _ in pairs})
    assert together >= (n - 2 * (repeats - 1)) // repeats


@given(st.integers(1, 60), st.integers(1, 20), st.integers(1, 4), st.data())
def test_repeated_batches_resume(n, batch_size, repeats, data):
    batches = batch_count(n, batch_size)
    assert len(list(repeated_batches(n, batch_size, 3, 5, repeats))) == batches
    start = data.draw(st.integers(0, batches))
    whole = draws(n, batch_size, 3, 5, repeats)
    assert draws(n, batch_size, 3, 5, repeats, start) == whole[start * batch_size :]


def test_one_copy_is_an_epoch_as_ever():
    for epoch in range(3):
        for (indices, copies), expected in zip(
            repeated_batches(50, 8, 2, epoch, 1), epoch_batches(50, 8, 2, epoch), strict=True
        ):
            np.testing.assert_array_equal(indices, expected)
            assert not copies.any()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((10, 4, 0, 0, 0), "repeats .*not 0"),
        ((10, 0, 0, 0, 3), "10 and 0"),
        ((10, 4, 0, 0, 3, 4), r"0 \.\. 3.*not 4"),
        ((10, 4, 0, -1, 3), "epoch .*not -1"),
    ],
)
def test_wrong_numbers_of_repeats_are_refused_at_the_call(arguments, words):
    with pytest.raises(ValueError, match=words):
        repeated_batches(*arguments)
