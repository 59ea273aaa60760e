"""Is one mean larger than another, or is that the spread?  Means of a few runs, compared in pairs.

Two arms that ran with the same seeds share what a seed decides: the start, the order of the images, their
augmentation.  The difference of a pair is free of that, so differences can spread less than either arm does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

# The 0.975 quantile of Student's t for 1 to 30 degrees of freedom: 95 % of the distribution lie within +- so much.
# Source: NIST/SEMATECH e-Handbook of Statistical Methods, section 1.3.6.7.2.
T_975 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip

_ROUNDING = 1e-12  # differences of accuracies that are the same but for rounding


@dataclass(frozen=True)
class Difference:
    """The mean of paired differences, and half the width of its 95 % range; None where the pairs show no spread."""

    mean: float
    half_width: float | None

    @property
    def beyond_the_spread(self) -> bool | None:
        """Whether the range leaves out 0; None where there is no range."""
        return None if self.half_width is None else abs(self.mean) > self.half_width


def mean(values: Sequence[float]) -> float:
    """Return the arithmetic mean, with a single rounding of the sum.

    Raises
    ------
    ValueError : no values.
    """
    if not values:
        raise ValueError("a mean needs at least one value")
    return math.fsum(values) / len(values)


def deviation(values: Sequence[float]) -> float | None:
    """Return the standard deviation, with n − 1 in its denominator; None for a single value.

    Raises
    ------
    ValueError : no values.
    """
    centre = mean(values)
    if len(values) == 1:
        return None
    return math.sqrt(math.fsum((value - centre) ** 2 for value in values) / (len(values) - 1))


def t_quantile(freedom: int) -> float:
    """Return the 0.975 quantile of Student's t; above 30 degrees of freedom that of 30, which is a little wide.

    Raises
    ------
    ValueError : no degree of freedom.
    """
    if freedom < 1:
        raise ValueError(f"Student's t needs at least 1 degree of freedom, not {freedom}")
    return T_975[min(freedom, len(T_975)) - 1]


def difference(a: Sequence[float], b: Sequence[float]) -> Difference:
    """Compare a with b, whose values belong together in pairs: mean(a − b) ± t·s/√n.

    A single pair has no spread.  Nor have pairs whose differences are all the same, as may happen by chance where
    accuracies are counts of a few hundred images: a range without width would claim far too much.

    Parameters
    ----------
    a, b : n values each; s is the deviation of the n differences, t has n − 1 degrees of freedom

    Raises
    ------
    ValueError : no values, or not as many of one as of the other.

    Source: Student 1908, "The probable error of a mean".
    """
    if len(a) != len(b):
        raise ValueError(f"pairs need as many values of each, not {len(a)} and {len(b)}")
    differences = [x - y for x, y in zip(a, b, strict=True)]
    spread = deviation(differences)
    if spread is None or spread <= _ROUNDING:
        return Difference(mean(differences), None)
    return Difference(mean(differences), t_quantile(len(differences) - 1) * spread / math.sqrt(len(differences)))
