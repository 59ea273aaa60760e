"""A masked autoencoder's batch: augmented images, and noise that chooses other patches each time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from numpy_vit.data import Augmentation, Dataset, Preprocessing, Split
from numpy_vit.models import mae, vit
from numpy_vit.training import reconstruction
from numpy_vit.training.recipe import Recipe
from numpy_vit.training.task import Task

INDICES = np.array([4, 1, 9, 4, 0, 11])
REPEATS = np.array([0, 0, 0, 1, 0, 0])


def task(**fields: Any) -> Task:
    rng = np.random.default_rng(1)
    pixels = rng.integers(0, 200, (12, 3, 8, 12), np.uint8)
    train = Dataset("noise train", pixels, np.zeros(12, np.int64), ("anything",))
    encoder = vit.Config(
        image_size=(8, 12), patch_size=2, num_classes=0, embed_dim=8, depth=1, num_heads=2, class_token=True,
        pos_embed="sincos_2d_mae",
    )  # fmt: skip
    config = mae.Config(encoder, decoder_embed_dim=8, decoder_depth=1, decoder_num_heads=2)
    data = Split(train, replace(train, name="noise test"))
    return Task(reconstruction, mae, config, Recipe(seed=3, **fields), data, Preprocessing.of(train))


def prepared(made: Task, epoch: int = 2, number: int = 1, dtype: Any = np.float32) -> reconstruction.Batch:
    return reconstruction.prepare(made, INDICES, REPEATS, epoch, number, dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("fields", "augmentation"),
    [
        ({}, {}),
        ({"flip": True, "crop_scale": 0.4}, {"flip": True, "crop_scale": (0.4, 1.0)}),
        ({"padding": 3, "pad_mode": "reflect"}, {"padding": 3, "mode": "reflect"}),
        ({"affine": 1.0, "color_jitter": 0.4}, {"affine": 1.0, "color_jitter": 0.4}),
    ],
)
def test_the_images_are_augmented_and_normalised(
    fields: dict[str, Any], augmentation: dict[str, Any], dtype: Any
) -> None:
    made = task(**fields)
    images = made.data.train.take(INDICES).images
    changed = Augmentation(**augmentation).apply(images, 3, 2, INDICES, REPEATS)
    assert (changed != images).any() == bool(fields)
    mean, std = (np.reshape(values, (3, 1, 1)) for values in (made.preprocessing.mean, made.preprocessing.std))
    batch = prepared(made, dtype=dtype)
    assert batch.images.dtype == dtype
    np.testing.assert_allclose(batch.images, (changed / 255 - mean) / std, rtol=0, atol=2e-6)
    assert len(batch) == len(INDICES)


def test_the_augmentation_is_another_one_in_each_epoch() -> None:
    made = task(flip=True, crop_scale=0.4)
    first, again, later = prepared(made).images, prepared(made).images, prepared(made, epoch=3).images
    assert first.tobytes() == again.tobytes()
    assert (first != later).any(axis=(1, 2, 3)).all()


def test_the_noise_is_reproducible_and_another_one_for_every_sample_batch_epoch_and_seed() -> None:
    made = task()
    other = replace(made, recipe=replace(made.recipe, seed=4))
    batches = [prepared(made), prepared(made, epoch=3), prepared(made, number=2), prepared(other)]
    assert prepared(made).noise.tobytes() == batches[0].noise.tobytes()
    noise = np.concatenate([batch.noise for batch in batches])
    assert noise.dtype == np.float32
    assert noise.shape == (4 * len(INDICES), 24)
    assert len(np.unique(noise)) > 0.999 * noise.size
    visible = np.sort(np.argsort(noise, axis=1)[:, :6], axis=1)  # a quarter of 24 patches
    assert len({row.tobytes() for row in visible}) == len(visible)


def test_the_noise_is_uniform() -> None:
    made = task()
    noise = np.concatenate([prepared(made, number=number).noise for number in range(100)])  # (600, 24)
    assert noise.min() >= 0
    assert noise.max() < 1
    often = np.bincount(np.argsort(noise, axis=1)[:, :6].ravel(), minlength=24)
    assert np.abs(often - 150).max() < 5 * np.sqrt(600 * 0.25 * 0.75)  # each patch is as often visible
