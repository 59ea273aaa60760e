"""What tests of augmentation share: pictures, and a Generator under the names that other libraries draw by."""

from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image


@pytest.fixture
def picture_of():
    """Return pictures (height, width, channels): smooth, so that moved pixels matter, with noise on top."""

    def make(height=32, width=32, channels=3, seed=0):
        rng = np.random.default_rng(seed)
        coarse = rng.integers(0, 256, (4, 4, channels), np.uint8)
        smooth = [np.asarray(Image.fromarray(coarse[..., i]).resize((width, height), 3)) for i in range(channels)]
        noise = rng.integers(-20, 21, (height, width, channels))
        pixels = np.clip(np.stack(smooth, -1).astype(int) * 0.8 + 20 + noise, 0, 255).astype(np.uint8)
        return Image.fromarray(pixels[..., 0] if channels == 1 else pixels)

    return make


@pytest.fixture
def as_random():
    """Return a Generator dressed as Python's `random` module: the same numbers, one after another."""

    def dress(rng):
        return SimpleNamespace(
            random=rng.random,
            uniform=rng.uniform,
            gauss=rng.normal,
            randint=lambda low, high: int(rng.integers(low, high + 1)),
            choice=lambda values: values[int(rng.integers(len(values)))],
        )

    return dress
