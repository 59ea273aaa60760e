"""Probes of features whose classes are known to be separable, or known not to be there."""

from __future__ import annotations

import numpy as np

from numpy_vit.data import Preprocessing, load
from numpy_vit.models import deit, vit, vit_config
from numpy_vit.training.probing import features, linear_probe, nearest


def _clusters(rng: np.random.Generator, n: int, spread: float) -> tuple[np.ndarray, np.ndarray]:
    centres = np.random.default_rng(0).normal(size=(4, 12)) * 3
    labels = rng.integers(0, 4, n)
    return (centres[labels] + spread * rng.normal(size=(n, 12))).astype(np.float32), labels


def test_clusters_are_told_apart() -> None:
    rng = np.random.default_rng(1)
    (x, y), (x_test, y_test) = _clusters(rng, 300, 0.5), _clusters(rng, 100, 0.5)
    probe = linear_probe(x, y, x_test, y_test, 4)
    assert probe.accuracy == probe.train_accuracy == 1
    assert (nearest(x, y, x_test, 4) == y_test).all()


def test_noise_says_nothing() -> None:
    rng = np.random.default_rng(2)
    x, x_test = rng.normal(size=(400, 12)).astype(np.float32), rng.normal(size=(2000, 12)).astype(np.float32)
    y, y_test = rng.integers(0, 4, 400), rng.integers(0, 4, 2000)
    assert abs(linear_probe(x, y, x_test, y_test, 4).accuracy - 0.25) < 0.05
    assert abs((nearest(x, y, x_test, 4) == y_test).mean() - 0.25) < 0.05


def test_the_scale_and_place_of_a_feature_do_not_matter() -> None:
    rng = np.random.default_rng(3)
    (x, y), (x_test, y_test) = _clusters(rng, 200, 3.0), _clusters(rng, 500, 3.0)
    scale, shift = np.float32(10) ** np.arange(-4, 8).astype(np.float32), rng.normal(size=12).astype(np.float32)
    plain = linear_probe(x, y, x_test, y_test, 4)
    scaled = linear_probe(x * scale + shift, y, x_test * scale + shift, y_test, 4)
    assert 0.5 < plain.accuracy < 1
    assert abs(plain.accuracy - scaled.accuracy) < 0.01


def test_the_nearest_neighbour_alone_by_hand() -> None:
    train = np.array([[1, 0], [0, 2], [-3, 0]], np.float32)
    test = np.array([[5, 1], [0.1, 1], [-1, -0.5]], np.float32)  # by angle: to the first, second and third
    assert nearest(train, np.array([2, 0, 1]), test, 3, k=1).tolist() == [2, 0, 1]


def test_many_neighbours_vote_by_similarity() -> None:
    """Two far ones of class 0 weigh exp(-1/0.07) each: less than one close one of class 1."""
    train = np.array([[0, 1], [0, 1], [1, 0]], np.float32)
    assert nearest(train, np.array([0, 0, 1]), np.array([[1, 0]], np.float32), 2, k=3).tolist() == [1]
    assert nearest(train, np.array([0, 0, 1]), np.array([[1, 1]], np.float32), 2, k=3).tolist() == [0]


def test_features_are_what_the_head_reads() -> None:
    data = load("digits").test.subset(range(7))
    config = vit_config("vit_digits_patch2_8", num_classes=10)
    params = vit.init(config, np.random.default_rng(0), np.float64)
    preprocessing = Preprocessing.of(data.take(range(7)))
    found = features(vit, params, config, data, preprocessing, workers=2)
    logits = vit.predict(params, preprocessing.apply(data.take(range(7)).images, np.float64), config)
    assert found.shape == (7, 64)
    np.testing.assert_allclose(found @ params["head"]["weight"].T + params["head"]["bias"], logits, atol=1e-12)


def test_a_distilled_model_gives_what_its_heads_read() -> None:
    config = deit.Config(
        image_size=8, patch_size=2, in_chans=1, num_classes=3, embed_dim=16, depth=1, num_heads=2, global_pool="token"
    )
    params = deit.init(config, np.random.default_rng(0))
    train = load("digits").train.subset(np.arange(6))
    preprocessing = Preprocessing.of(train)
    record: dict[str, np.ndarray] = {}
    deit.forward(params, preprocessing.apply(train.images), config, record=record)
    found = features(deit, params, config, train, preprocessing)
    np.testing.assert_allclose(found, record["norm"][:, :2].mean(axis=1), atol=1e-5)
