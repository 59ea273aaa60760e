"""Differences of means by hand, and Student's t by its closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest

from numpy_vit.training import paired


def within(t: float, freedom: int) -> float:
    """P(|T| <= t), by the finite sums of Abramowitz & Stegun 26.7.3 (odd) and 26.7.4 (even degrees of freedom)."""
    angle = math.atan(t / math.sqrt(freedom))
    cosine, total = math.cos(angle), 0.0
    term = cosine if freedom % 2 else 1.0
    for k in range(freedom // 2):
        total += term
        step = (2 * k + 2) / (2 * k + 3) if freedom % 2 else (2 * k + 1) / (2 * k + 2)
        term *= step * cosine**2
    if freedom % 2:
        return 2 / math.pi * (angle + math.sin(angle) * total)
    return math.sin(angle) * total


def test_the_quantiles_of_one_and_two_degrees_of_freedom() -> None:
    """Cauchy's is tan(pi (p - 1/2)); that of 2 is (2p - 1) sqrt(2 / (1 - (2p - 1)^2))."""
    assert paired.t_quantile(1) == pytest.approx(math.tan(math.pi * 0.475), abs=5e-4)
    assert paired.t_quantile(2) == pytest.approx(0.95 * math.sqrt(2 / (1 - 0.95**2)), abs=5e-4)


@pytest.mark.parametrize("freedom", range(1, 31))
def test_95_percent_lie_within(freedom: int) -> None:
    t = paired.t_quantile(freedom)
    assert within(t - 5e-4, freedom) < 0.95 < within(t + 5e-4, freedom)  # the table has three decimals


def test_the_quantiles_fall_towards_the_normal_distribution() -> None:
    quantiles = [paired.t_quantile(freedom) for freedom in range(1, 31)]
    assert quantiles == sorted(quantiles, reverse=True)
    assert len(set(quantiles)) == 30
    assert paired.t_quantile(1000) == quantiles[-1] > 1.96


def test_a_paired_example_by_hand() -> None:
    """Differences 1, 2, 6: mean 3, deviation sqrt((4 + 1 + 9) / 2) = sqrt 7, so 3 +- 4.303 sqrt(7 / 3)."""
    found = paired.difference([11, 22, 36], [10, 20, 30])
    assert found.mean == 3
    assert found.half_width == pytest.approx(4.303 * math.sqrt(7 / 3), rel=1e-15)
    assert found.beyond_the_spread is False  # 6.57 is more than 3


def test_pairs_tell_what_the_spread_of_each_hides() -> None:
    """The seeds spread by 20 points, and the second arm is a point worse with each of them, nearly."""
    a, b = [0.70, 0.80, 0.90], [0.69, 0.791, 0.889]
    assert paired.deviation(a) == pytest.approx(0.1)
    assert paired.difference(a, b).beyond_the_spread is True
    assert paired.difference(a, [b[1], b[2], b[0]]).beyond_the_spread is False  # the wrong pairs: the control
    assert paired.difference(b, a).mean == -paired.difference(a, b).mean


def test_mean_and_deviation_by_hand() -> None:
    assert paired.mean([2, 4, 9]) == 5
    assert paired.deviation([2, 4, 9]) == math.sqrt((9 + 1 + 16) / 2)
    assert paired.deviation([2]) is None


def test_the_means_agree_with_numpy() -> None:
    values = np.random.default_rng(0).random(20).tolist()
    assert paired.mean(values) == pytest.approx(np.mean(values), rel=1e-14)
    assert paired.deviation(values) == pytest.approx(np.std(values, ddof=1), rel=1e-14)


def test_without_a_spread_nothing_is_claimed() -> None:
    for a, b in [([0.9], [0.8]), ([0.9, 0.8, 0.7], [0.8, 0.7, 0.6]), ([1.0, 1.0], [1.0, 1.0])]:
        found = paired.difference(a, b)
        assert (found.half_width, found.beyond_the_spread) == (None, None)


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(ValueError, match="not 2 and 1"):
        paired.difference([1, 2], [1])
    with pytest.raises(ValueError, match="at least one value"):
        paired.difference([], [])
    with pytest.raises(ValueError, match="1 degree of freedom"):
        paired.t_quantile(0)
