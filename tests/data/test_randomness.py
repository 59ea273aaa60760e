"""Streams are functions of their arguments and of nothing else."""

import itertools

import numpy as np
import pytest

from numpy_vit.data.randomness import ERASING, batch_rng, epoch_rng, sample_rng, sample_rngs


def test_the_stream_is_philox_with_the_documented_key_and_counter():
    expected = np.random.Philox(key=5 + (3 << 64), counter=(77 << 128) + (2 << 192)).random_raw(4)
    np.testing.assert_array_equal(sample_rng(5, 3, 77, 2).bit_generator.random_raw(4), expected)


def test_known_answer():
    # Random123's kat_vectors, philox4x64 10 rounds with counter and key zero; NumPy counts up before its first block,
    # so a counter of 2^256 - 1 comes to zero.
    raw = np.random.Philox(key=0, counter=2**256 - 1).random_raw(4)
    assert [hex(word) for word in raw] == [
        "0x16554d9eca36314c",
        "0xdb20fe9d672d0fdc",
        "0xd7e772cee186176b",
        "0x7e68b68aec7ba23b",
    ]


def test_streams_differ_in_every_argument():
    starts = {sample_rng(*arguments).integers(2**63) for arguments in itertools.product(range(4), repeat=4)}
    starts |= {epoch_rng(*arguments).integers(2**63) for arguments in itertools.product(range(4), repeat=2)}
    starts |= {batch_rng(*arguments).integers(2**63) for arguments in itertools.product(range(4), repeat=3)}
    for seed, epoch, repeat in itertools.product(range(4), repeat=3):
        starts |= {rng.integers(2**63) for rng in sample_rngs(seed, epoch, range(4), repeat, ERASING)}
    assert len(starts) == 4**4 + 4**2 + 4**3 + 4**4


def test_large_arguments_do_not_wrap_or_collide():
    assert sample_rng(2**64 - 1, 0, 2**32).random() != sample_rng(2**64 - 1, 0, 0).random()
    assert sample_rng(1 + 2**32, 0, 0).random() != sample_rng(1, 1, 0).random()
    assert sample_rng(np.int64(3), np.int64(1), np.uint8(2)).random() == sample_rng(3, 1, 2).random()


@pytest.mark.parametrize("arguments", [(-1, 0, 0), (0, -1, 0), (0, 0, -1), (0, 0, 0, -1), (2**64, 0, 0)])
def test_numbers_out_of_range(arguments):
    with pytest.raises(ValueError, match=r"must be in 0 \.\. 2\^64 - 1, not (-1|18446744073709551616)"):
        sample_rng(*arguments)
    with pytest.raises(TypeError):
        sample_rng(0, 1.5, 0)


def test_one_generator_for_many_samples_draws_what_each_sample_s_own_does():
    samples = [5, 0, 2**40, 5]
    for sample, rng in zip(samples, sample_rngs(3, 1, samples, 2), strict=True):
        own = sample_rng(3, 1, sample, 2)
        # an odd number of 32-bit draws leaves half a word behind, which must not reach the next sample
        assert rng.integers(9, dtype=np.int32) == own.integers(9, dtype=np.int32)
        np.testing.assert_array_equal(rng.random(6), own.random(6))
    for arguments in ((-1, 0, [0]), (0, 2**64, [0]), (0, 0, [4, -1]), (0, 0, [0], -1)):
        with pytest.raises(ValueError, match=r"must be in 0 \.\. 2\^64 - 1"):
            list(sample_rngs(*arguments))


def test_each_sample_may_have_a_repeat_of_its_own():
    samples, repeats = [5, 5, 0, 2**40], [0, 2, 1, 7]
    for sample, repeat, rng in zip(samples, repeats, sample_rngs(3, 1, samples, repeats), strict=True):
        np.testing.assert_array_equal(rng.random(3), sample_rng(3, 1, sample, repeat).random(3))
    with pytest.raises(ValueError, match=r"repeat must be in 0 .*not -1"):
        list(sample_rngs(3, 1, samples, [0, 0, 0, -1]))
    with pytest.raises(ValueError, match="shorter"):
        list(sample_rngs(3, 1, samples, repeats[:3]))


def test_the_stream_of_a_batch_is_philox_with_its_own_purpose():
    expected = np.random.Philox(key=5 + (3 << 64), counter=(2 << 64) + (77 << 128)).random_raw(4)
    np.testing.assert_array_equal(batch_rng(5, 3, 77).bit_generator.random_raw(4), expected)
