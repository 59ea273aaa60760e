"""How much a frozen model's features know: a linear head on them, and their nearest neighbours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import numpy as np

from numpy_vit.data.dataset import ImageSet
from numpy_vit.data.preprocessing import Preprocessing
from numpy_vit.layers import cross_entropy, linear
from numpy_vit.training import adamw, schedules
from numpy_vit.training.evaluate import predict
from numpy_vit.tree import Array, Params, pack

HEADS = ("head", "head_dist")
DECAYS = (1e-2, 1e-1, 1.0, 3.0, 10.0, 20.0)
NEIGHBOURS, TEMPERATURE = 20, 0.07  # Wu et al. 2018 and DINO
_STEPS, _RATE = 300, 0.02
_HELD_OUT = 10  # every tenth training image chooses the decay
_CHUNK = 1 << 24  # similarities at once


@dataclass(frozen=True)
class Probe:
    """What a linear head reached, with the decay that was best on a tenth of the training part."""

    accuracy: float
    train_accuracy: float
    weight_decay: float


def features(
    model: ModuleType,
    params: Params,
    config: Any,
    data: ImageSet,
    preprocessing: Preprocessing,
    workers: int = 1,
    on_progress: Callable[[int], None] = lambda done: None,
) -> Array:
    """Return what the head would read of each image, (n, D): for a DeiT the mean of what its two heads would."""
    body = {name: part for name, part in params.items() if name not in HEADS}
    return predict(model, body, replace(config, num_classes=0), data, preprocessing, workers, on_progress)


def linear_probe(train: Array, labels: Array, test: Array, test_labels: Array, classes: int) -> Probe:
    """Train a linear head on features and return its accuracy on others.

    The features are standardised by the training part's statistics, as MAE's probe does by a batch norm.  The head is
    trained with AdamW on all of them at once; its decay is the one that is best on a tenth of the training part, which
    is then trained on as well.

    Parameters
    ----------
    train, test : (n, D) and (m, D)
    labels, test_labels : (n,) and (m,)
    classes : K
    """
    mean, deviation = train.mean(axis=0), train.std(axis=0)
    deviation[deviation == 0] = 1  # a constant feature says nothing, whatever it is divided by
    x, x_test = (train - mean) / deviation, (test - mean) / deviation
    held = np.arange(len(x)) % _HELD_OUT == _HELD_OUT - 1
    best = DECAYS[0]
    if held.any() and len(np.unique(labels[~held])) > 1:
        tried = [
            (_accuracy(_head(x[~held], labels[~held], classes, decay), x[held], labels[held]), decay)
            for decay in DECAYS
        ]
        best = max(tried)[1]
    head = _head(x, labels, classes, best)
    return Probe(_accuracy(head, x_test, test_labels), _accuracy(head, x, labels), best)


def nearest(train: Array, labels: Array, test: Array, classes: int, k: int = NEIGHBOURS) -> Array:
    """Return the classes (m,) that the k most similar training features vote for.

    A vote weighs exp(cosine similarity / 0.07).

    Source: Wu et al. 2018, "Unsupervised feature learning via non-parametric instance discrimination", section 3.4.
    """
    k = min(k, len(train))
    train, test = _unit(train), _unit(test)
    step = max(1, _CHUNK // len(train))
    found = []
    for start in range(0, len(test), step):
        similarity = test[start : start + step] @ train.T  # (b, n)
        close = np.argpartition(similarity, -k, axis=1)[:, -k:]
        weight = np.exp((np.take_along_axis(similarity, close, axis=1) - 1) / TEMPERATURE)
        votes = np.zeros((len(similarity), classes), weight.dtype)
        np.add.at(votes, (np.arange(len(votes))[:, None], labels[close]), weight)
        found.append(votes.argmax(axis=1))
    return np.concatenate(found)


def _head(x: Array, labels: Array, classes: int, decay: float) -> Params:
    flat, params = pack({"weight": np.zeros((classes, x.shape[1]), x.dtype), "bias": np.zeros(classes, x.dtype)})
    state = adamw.init(flat)
    for step in range(_STEPS):
        logits, c_linear = linear.forward(params, x)
        _, c_loss = cross_entropy.forward(logits, labels)
        grads = linear.parameter_gradients(cross_entropy.backward(1.0, c_loss), c_linear)
        rate = schedules.warmup_cosine(step, _STEPS, _RATE, 0)
        adamw.update(flat, pack(grads, ["weight", "bias"])[0], state, rate, weight_decay=decay)
    return params


def _accuracy(head: Params, x: Array, labels: Array) -> float:
    logits, _ = linear.forward(head, x)
    return float((logits.argmax(axis=1) == labels).mean())


def _unit(x: Array) -> Array:
    norm = np.linalg.norm(x, axis=1, keepdims=True)
    unit: Array = x / np.maximum(norm, np.finfo(x.dtype).tiny)
    return unit
