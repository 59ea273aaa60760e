"""A batch is made of its pieces in the documented order: augmented, normalised, erased, mixed."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from numpy_vit.data import Dataset, Preprocessing, Split, randomness
from numpy_vit.data.affine import random_affine
from numpy_vit.data.colour_jitter import ColourJitter
from numpy_vit.data.mixing import Mixing
from numpy_vit.data.pillow_augment import FILTERS, through_pillow
from numpy_vit.data.rand_augment import RandAugment
from numpy_vit.data.random_erasing import MODES, RandomErasing
from numpy_vit.data.resized_crop import ResizedCrop
from numpy_vit.data.three_augment import ThreeAugment
from numpy_vit.data.transforms import horizontal_flip, random_crop
from numpy_vit.models import vit
from numpy_vit.training import classification, loop
from numpy_vit.training.recipe import Recipe
from numpy_vit.training.task import Task

Array = np.ndarray[Any, Any]
SEED, EPOCH, NUMBER = 5, 2, 3
INDICES, REPEATS = np.array([7, 0, 19, 7, 12, 3, 16]), np.array([0, 0, 0, 1, 0, 0, 0])


def task(**fields: Any) -> Task:
    rng = np.random.default_rng(1)
    pixels = rng.integers(0, 200, (20, 3, 12, 10), np.uint8)
    pixels[:, 1] //= 2  # channels of different means and deviations
    train = Dataset("noise train", pixels, rng.integers(0, 4, 20), ("a", "b", "c", "d"))
    config = vit.Config(image_size=(12, 10), patch_size=2, num_classes=4, embed_dim=8, depth=1, num_heads=2)
    data = Split(train, replace(train, name="noise test"))
    return Task(classification, vit, config, Recipe(seed=SEED, **fields), data, Preprocessing.of(train))


def prepared(made: Task, dtype: Any = np.float32) -> classification.Batch:
    return classification.prepare(made, INDICES, REPEATS, EPOCH, NUMBER, dtype)


def augmented(made: Task) -> Array:
    """What happens to the bytes, image by image."""
    recipe, filters = made.recipe, FILTERS["random"]
    fill = tuple(round(255 * value) for value in made.preprocessing.mean)
    images = []
    for index, repeat in zip(INDICES.tolist(), REPEATS.tolist(), strict=True):
        rng, changes = randomness.sample_rng(SEED, EPOCH, index, repeat), []
        image = made.data.train.take([index]).images
        if recipe.padding:
            image = random_crop(image[0], recipe.padding, rng, recipe.pad_mode)[None]
        if recipe.crop_scale is not None:
            crop = ResizedCrop((recipe.crop_scale, 1.0), (3 / 4, 4 / 3), filters)
            image = through_pillow(image, [[crop.draw((12, 10), rng)]])
        image = horizontal_flip(image[0], rng)[None] if recipe.flip else image
        image = random_affine(image[0], recipe.affine, rng)[None] if recipe.affine else image
        if recipe.auto_augment == "3a":
            changes += ThreeAugment().draw(rng)
        elif recipe.auto_augment:
            changes += RandAugment.parse(recipe.auto_augment, fill, filters).draw(rng)
        if recipe.color_jitter:
            changes += ColourJitter(*[recipe.color_jitter] * 3).draw(rng)
        images.append(through_pillow(image, [changes])[0])
    return np.stack(images)


def by_hand(made: Task) -> tuple[Array, Array]:
    """The images and targets of a batch, in float64."""
    recipe, labels = made.recipe, made.data.train.take(INDICES).labels
    mean, std = (np.reshape(values, (3, 1, 1)) for values in (made.preprocessing.mean, made.preprocessing.std))
    x = (augmented(made) / 255 - mean) / std
    if recipe.erase:
        x = RandomErasing(recipe.erase, recipe.erase_mode).apply(x, SEED, EPOCH, INDICES, REPEATS)
    if not (recipe.mixup or recipe.cutmix):
        return x, labels
    targets = (1 - recipe.label_smoothing) * np.eye(4)[labels] + recipe.label_smoothing / 4
    mix = Mixing(recipe.mixup, recipe.cutmix).draw(randomness.batch_rng(SEED, EPOCH, NUMBER), x.shape)
    top, bottom, left, right = mix.box
    own = np.full((12, 10), mix.lam)  # the share of an image's own pixels
    if mix.kind == "cutmix":
        own[:] = 1
        own[top:bottom, left:right] = 0
    return own * x + (1 - own) * x[::-1], mix.lam * targets + (1 - mix.lam) * targets[::-1]


@pytest.mark.parametrize(
    "fields",
    [
        {"padding": 3, "pad_mode": "reflect"},
        {"flip": True, "affine": 1.0},
        {"crop_scale": 0.3},
        {"auto_augment": "rand-m9-mstd0.5-inc1"},
        {"auto_augment": "3a"},
        {"color_jitter": 0.4},
        {"erase": 0.6},
        {"erase": 0.6, "erase_mode": "pixel"},
        {"mixup": 0.8},
        {"mixup": 0.8, "label_smoothing": 0.1},
        {"cutmix": 1.0},
        {"cutmix": 1.0, "mixup": 0.8, "flip": True, "padding": 2, "color_jitter": 0.2, "erase": 0.9},
        {"auto_augment": "rand-m9", "crop_scale": 0.5, "erase": 0.9, "erase_mode": "pixel", "mixup": 0.8},
    ],
    ids=lambda fields: ",".join(fields),
)
def test_a_batch_equals_its_pieces_in_turn(fields: dict[str, Any]) -> None:
    made = task(**fields)
    batch, plain = prepared(made), prepared(task())
    x, targets = by_hand(made)
    np.testing.assert_allclose(batch.images, x, rtol=0, atol=2e-6)
    np.testing.assert_allclose(batch.targets, targets, rtol=0, atol=1e-7)
    np.testing.assert_array_equal(batch.labels, made.data.train.take(INDICES).labels)
    np.testing.assert_array_equal(batch.indices, INDICES)
    assert batch.images.dtype == np.float32
    assert np.abs(batch.images - plain.images).max() > 0.1  # so that leaving the piece out would be seen
    if targets.ndim == 2:
        assert batch.targets.dtype == np.float32
        assert (batch.targets > 0.05).sum(axis=1).max() == 2  # two classes share an image


def test_without_fields_a_batch_is_its_images() -> None:
    made = task()
    np.testing.assert_allclose(prepared(made, np.float64).images, by_hand(made)[0], rtol=0, atol=1e-14)
    np.testing.assert_array_equal(prepared(made).targets, made.data.train.take(INDICES).labels)


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_of_erasing_reaches_the_pixels(mode: Any) -> None:
    made, plain = task(erase=1.0, erase_mode=mode), prepared(task()).images
    erased = prepared(made).images
    gone = (erased != plain).all(axis=1)  # (B, Y, X)
    assert gone.any(axis=(1, 2)).all()
    values = np.moveaxis(erased, 1, -1)[gone]  # (pixels, C)
    assert (values == 0).all() if mode == "const" else len(np.unique(values)) == values.size


def test_seed_epoch_repeat_and_batch_matter() -> None:
    made = task(flip=True, erase=0.5, erase_mode="pixel", mixup=0.8)
    usual = (made, INDICES, REPEATS, EPOCH, NUMBER, np.float32)
    others = [
        (replace(made, recipe=replace(made.recipe, seed=6)), *usual[1:]),
        (made, INDICES, REPEATS + 1, EPOCH, NUMBER, np.float32),
        (made, INDICES, REPEATS, EPOCH + 1, NUMBER, np.float32),
        (made, INDICES, REPEATS, EPOCH, NUMBER + 1, np.float32),
    ]
    batches = {classification.prepare(*arguments).images.tobytes() for arguments in (usual, usual, *others)}
    assert len(batches) == 5


def test_the_share_of_dropped_patches_reaches_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    made = task(epochs=5, batch_size=10, patch_drop=0.5, patch_drop_until=0.8, patch_drop_steps=2)
    shares, gradients = [], classification.gradients

    def watched(task: Task, form: tuple[ModuleType, Any], *rest: Any) -> classification.Found:
        shares.append(form[1].patch_drop_rate)
        return gradients(task, form, *rest)

    monkeypatch.setattr(classification, "gradients", watched)
    loop.train(made, loop.start(made), lambda state, loss: None, lambda state, row: None)
    assert shares == [0.5] * 4 + [0.25] * 4 + [0.0] * 2  # two steps an epoch
