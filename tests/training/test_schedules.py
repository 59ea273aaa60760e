"""Schedules against their end points, closed forms and PyTorch."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from numpy_vit.training.schedules import SCHEDULES, warmup_constant, warmup_cosine, warmup_linear


def rates(schedule, total, *args, **kwargs):
    return [schedule(step, total, *args, **kwargs) for step in range(total)]


def test_by_hand():
    root = math.sqrt(2)
    cosine = [1 / 3, 2 / 3, 1, (2 + root) / 4, 0.5, (2 - root) / 4, 0]
    np.testing.assert_allclose(rates(warmup_cosine, 7, 1.0, warmup=3), cosine, rtol=1e-14, atol=1e-16)
    np.testing.assert_allclose(rates(warmup_cosine, 3, 1.0, final=0.5), [1, 0.75, 0.5])
    line = [0.5, 1, 0.8, 0.6, 0.4, 0.2]
    np.testing.assert_allclose(rates(warmup_linear, 6, 1.0, warmup=2, final=0.2), line)
    np.testing.assert_allclose(rates(warmup_constant, 4, 3.0, warmup=3, final=0.2), [1, 2, 3, 3])


@given(
    name=st.sampled_from(sorted(SCHEDULES)),
    total=st.integers(1, 60),
    warmup=st.integers(0, 59),
    base=st.floats(1e-6, 10),
    share=st.floats(0, 1),
)
def test_end_points(name, total, warmup, base, share):
    warmup = min(warmup, total - 1)
    final = base * share
    lr = rates(SCHEDULES[name], total, base, warmup, final)
    assert all(isinstance(rate, float) for rate in lr)
    top = max(warmup - 1, 0)
    np.testing.assert_allclose(lr[:warmup], base * np.arange(1, warmup + 1) / warmup if warmup else [], rtol=1e-15)
    assert lr[top] == base
    if total > 1 and top < total - 1:
        assert lr[-1] == (base if name == "constant" else final)
    assert all(a >= b * (1 - 1e-12) for a, b in zip(lr[top:], lr[top + 1 :], strict=False))
    if name != "constant" and final < base * 0.99:
        assert lr.count(base) == 1  # not once as the last of the warm-up and once more as the first of the cosine


def test_a_table_of_all():
    table = {"cosine": warmup_cosine, "linear": warmup_linear, "constant": warmup_constant}
    assert dict(SCHEDULES) == table


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize(
    "args, text",
    [
        ((0, 0, 1.0, 0, 0.0), "total is 0"),
        ((5, 5, 1.0, 0, 0.0), "step is 5, a run of 5 updates has steps 0 to 4"),
        ((-1, 5, 1.0, 0, 0.0), "step is -1"),
        ((0, 5, 1.0, 5, 0.0), "warmup is 5, it must lie between 0 and 4 in a run of 5 updates"),
        ((0, 5, 1.0, -1, 0.0), "warmup is -1"),
        ((0, 5, -1.0, 0, 0.0), r"base is -1\.0"),
        ((0, 5, 1.0, 0, math.nan), "final is nan"),
    ],
)
def test_wrong_arguments(name, args, text):
    with pytest.raises(ValueError, match=text):
        SCHEDULES[name](*args)


@pytest.mark.framework
def test_torch():
    torch = pytest.importorskip("torch")
    scheduler = torch.optim.lr_scheduler
    total, warmup, base, final = 40, 8, 0.3, 0.02

    def theirs(make, length):
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=base)
        schedule = make(optimizer)
        lr = []
        for _ in range(length):
            lr.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            schedule.step()
        return lr

    rest = total - warmup  # updates after the one that has the base rate
    cosine = theirs(lambda o: scheduler.CosineAnnealingLR(o, rest, eta_min=final), rest + 1)
    line = theirs(lambda o: scheduler.LinearLR(o, 1.0, final / base, total_iters=rest), rest + 1)
    rise = theirs(lambda o: scheduler.LinearLR(o, 1 / warmup, 1.0, total_iters=warmup - 1), warmup)
    np.testing.assert_allclose(rates(warmup_cosine, total, base, warmup, final), rise[:-1] + cosine, rtol=1e-12)
    np.testing.assert_allclose(rates(warmup_linear, total, base, warmup, final), rise[:-1] + line, rtol=1e-12)
