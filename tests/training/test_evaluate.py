"""Accuracy, confusion counts and top-5 against counting by hand."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from numpy_vit.data import Dataset, Preprocessing
from numpy_vit.errors import DataError
from numpy_vit.models import vit
from numpy_vit.training.evaluate import evaluate, predict

CONFIG = vit.Config(
    image_size=4, patch_size=1, in_chans=1, num_classes=7, embed_dim=8, depth=1, num_heads=2, global_pool="avg"
)


def some_data(count: int = 40) -> tuple[Dataset, Preprocessing]:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (count, 1, 4, 4), dtype=np.uint8)
    data = Dataset("noise", images, rng.integers(0, 7, count), tuple("abcdefg"))
    return data, Preprocessing.of(data)


def test_counts_accuracy_and_top5_are_those_of_the_logits() -> None:
    data, preprocessing = some_data()
    logits = np.random.default_rng(1).standard_normal((40, 7)).astype(np.float32)
    given = iter(np.split(logits, [len(logits)]))
    model: Any = SimpleNamespace(predict=lambda params, images, config: next(given)[: len(images)])
    found = evaluate(model, {"a": np.zeros(1, np.float32)}, _whole_batch(), data, preprocessing)
    right = in_five = 0
    counts = np.zeros((7, 7), int)
    loss = 0.0
    for row, label in zip(logits.astype(float), data.labels, strict=True):
        ranking = sorted(range(7), key=lambda k: -row[k])
        counts[label, ranking[0]] += 1
        right += ranking[0] == label
        in_five += label in ranking[:5]
        loss += np.log(np.exp(row).sum()) - row[label]
    np.testing.assert_array_equal(found.counts, counts)
    assert found.accuracy == right / 40
    assert found.top5 == in_five / 40
    assert found.loss == pytest.approx(loss / 40, rel=1e-6)
    for k in range(7):
        assert found.per_class[k] == counts[k, k] / (data.labels == k).sum()


def _whole_batch() -> Any:
    """A configuration so small that all images are one shard."""
    return SimpleNamespace(num_patches=1, num_prefix_tokens=0, embed_dim=1)


def test_a_class_without_samples_has_no_accuracy() -> None:
    data, preprocessing = some_data()
    kept = data.take(np.flatnonzero(data.labels != 3))
    params = vit.init(CONFIG, np.random.default_rng(0))
    found = evaluate(vit, params, CONFIG, kept, preprocessing)
    assert np.isnan(found.per_class[3])
    assert not np.isnan(np.delete(found.per_class, 3)).any()


def test_prediction_is_that_of_the_whole_set_for_any_number_of_workers() -> None:
    data, preprocessing = some_data()
    params = vit.init(CONFIG, np.random.default_rng(0))
    whole = vit.predict(params, preprocessing.apply(data.images), CONFIG)
    one, two, again = (predict(vit, params, CONFIG, data, preprocessing, workers) for workers in (1, 2, 2))
    np.testing.assert_allclose(one, whole, rtol=0, atol=1e-6)
    assert one.tobytes() == two.tobytes() == again.tobytes()


def test_images_of_another_size_are_refused() -> None:
    data, preprocessing = some_data()
    low = replace(data, images=data.images[:, :, :3])
    with pytest.raises(DataError, match="trained on images"):
        predict(vit, vit.init(CONFIG, np.random.default_rng(0)), CONFIG, low, preprocessing)
