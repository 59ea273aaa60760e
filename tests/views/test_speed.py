"""The estimates of time as arithmetic; what a machine really takes is not tested."""

from __future__ import annotations

import pytest

from numpy_vit.models import vit_config
from numpy_vit.views import costs, speed

CONFIG = vit_config("vit_tiny_patch16_224")
FLOPS = 2 * sum(costs.multiply_adds(CONFIG).values())


def test_seconds_follow_from_the_operations() -> None:
    alone = speed.step_seconds(CONFIG, 1, 1, 1, 1e11)
    assert alone == pytest.approx(3 * FLOPS / (1e11 * 192 / (192 + speed.TRAINING)))
    assert speed.predict_seconds(CONFIG, 1, 1, 1, 1e11) == pytest.approx(FLOPS / (1e11 * 192 / (192 + speed.INFERENCE)))
    assert speed.step_seconds(CONFIG, 1, 1, 1, 2e11) == pytest.approx(alone / 2)


@pytest.mark.parametrize(
    ("batch", "shard", "workers", "images"),
    [(64, 8, 1, 64), (64, 8, 2, 32), (64, 24, 2, 48), (64, 64, 2, 64), (3, 8, 2, 3), (64, 8, 100, 8)],
)
def test_the_busiest_thread_decides(batch: int, shard: int, workers: int, images: int) -> None:
    one = speed.step_seconds(CONFIG, 1, 1, 1, 1e11)
    assert speed.step_seconds(CONFIG, batch, shard, workers, 1e11) == pytest.approx(images * one)


def test_wider_models_reach_more() -> None:
    tiny, base = (speed.utilisation(vit_config(f"vit_{name}_patch16_224"), 250) for name in ("tiny", "base"))
    assert 0 < tiny < base < 1


def test_matrix_products_are_measured() -> None:
    assert 1e8 < speed.gemm_speed(0.01) < 1e14
