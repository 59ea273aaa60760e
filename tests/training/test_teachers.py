"""Teachers: a model that sees the student's very pixels, logits from a file, and what does not fit."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from numpy_vit import tree
from numpy_vit.checkpoints import convert, own, safetensors
from numpy_vit.checks.examples import vit_example
from numpy_vit.checks.model_examples import deit_example
from numpy_vit.data import Dataset, Preprocessing
from numpy_vit.errors import CheckpointError, DataError
from numpy_vit.models import deit, vit
from numpy_vit.training.distillation import Distillation
from numpy_vit.training.objectives import CrossEntropy
from numpy_vit.training.step import objective_gradients
from numpy_vit.training.teachers import model_teacher, save_logits, saved_logits, teacher

STUDENT = Preprocessing((16, 16), 3, (0.4, 0.5, 0.3), (0.2, 0.25, 0.1))
OWN = Preprocessing((16, 16), 3, (0.1, 0.6, 0.5), (0.3, 0.2, 0.5))
NAMES = tuple("abcde")
HALF, IMAGENET = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)), ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
SIZES = {"image_size": 16, "patch_size": 4, "in_chans": 3, "num_classes": 5, "embed_dim": 64, "num_heads": 1}


def train(count: int = 7) -> Dataset:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (count, 3, 16, 16), np.uint8)
    return Dataset("some train", images, rng.integers(0, 5, count), NAMES)


def example(model: Any = vit, **fields: Any) -> tuple[Any, Any]:
    config = (deit_example if model is deit else vit_example)({**SIZES, **fields})
    rng = np.random.default_rng(1)
    params = model.init(config, rng)
    return config, tree.map(lambda a: a + 0.3 * rng.standard_normal(a.shape).astype(a.dtype), params)


def seen_by(seen: list[Any], answer: float = 1.0) -> Any:
    """A model that keeps what it is shown, and whose five logits are sums of the image."""

    def predict(params: Any, images: Any, config: Any) -> Any:
        seen.append(images)
        return answer * images.sum(axis=(1, 2, 3))[:, None] * np.arange(5, dtype=images.dtype)

    return SimpleNamespace(predict=predict)


CONFIG = SimpleNamespace(in_chans=3, image=(16, 16), num_tokens=16)
ONE = {"weight": np.ones(1, np.float32)}


def test_a_teacher_of_other_statistics_sees_the_same_pixels() -> None:
    seen: list[Any] = []
    teach = model_teacher(seen_by(seen), ONE, CONFIG, OWN, STUDENT)
    data = train()
    found = teach(STUDENT.apply(data.images), np.arange(7))
    (images,) = seen
    np.testing.assert_allclose(images, OWN.apply(data.images), rtol=1e-5, atol=1e-6)
    mixed = 0.3 * STUDENT.apply(data.images) + 0.7 * STUDENT.apply(data.images[::-1])  # of two images, as Mixup makes
    teach(mixed, np.arange(7))
    bytes_mixed = 0.3 * data.images + 0.7 * data.images[::-1].astype(np.float64)
    mean, std = (np.array(values)[:, None, None] for values in (OWN.mean, OWN.std))
    np.testing.assert_allclose(seen[1], (bytes_mixed / 255 - mean) / std, rtol=1e-5, atol=1e-5)
    assert found.dtype == seen[0].dtype == seen[1].dtype == np.float32


def test_a_teacher_of_the_same_statistics_sees_the_student_s_images_to_the_bit() -> None:
    seen: list[Any] = []
    images = STUDENT.apply(train().images)
    model_teacher(seen_by(seen), ONE, CONFIG, replace(STUDENT), STUDENT)(images, np.arange(7))
    assert seen[0].tobytes() == images.tobytes()


def test_a_teacher_computes_in_its_own_precision_and_answers_in_float32() -> None:
    seen: list[Any] = []
    images = STUDENT.apply(train().images)
    before = images.copy()
    wide = {"weight": np.ones(1, np.float64)}
    found = model_teacher(seen_by(seen), wide, CONFIG, OWN, STUDENT)(images, np.arange(7))
    assert seen[0].dtype == np.float64 and found.dtype == np.float32
    assert images.tobytes() == before.tobytes()


@pytest.mark.parametrize("model", [vit, deit])
def test_a_model_s_logits_are_its_predictions_for_any_number_of_workers(model: Any) -> None:
    config, params = example(model)
    data = train(100)
    images = STUDENT.apply(data.images)
    found = [model_teacher(model, params, config, OWN, STUDENT, workers)(images, np.arange(100)) for workers in (1, 3)]
    assert found[0].tobytes() == found[1].tobytes()
    expected = model.predict(params, OWN.apply(data.images), config)
    np.testing.assert_allclose(found[0], expected, rtol=1e-4, atol=1e-4)
    assert np.abs(expected - model.predict(params, images, config)).max() > 0.01


@pytest.mark.parametrize("image", [{"image": (16, 20)}, {"in_chans": 1}])
def test_images_that_the_teacher_does_not_take_are_refused(image: dict[str, Any]) -> None:
    config = SimpleNamespace(**{**vars(CONFIG), **image})
    with pytest.raises(DataError, match=r"the teacher takes images \(C, Y, X\) of .*student sees \(3, 16, 16\).*savez"):
        model_teacher(seen_by([]), ONE, config, OWN, STUDENT)


def test_logits_that_are_not_finite_are_told() -> None:
    teach = model_teacher(seen_by([], np.nan), ONE, CONFIG, OWN, STUDENT)
    with pytest.raises(DataError, match="the teacher's logits are not finite"):
        teach(STUDENT.apply(train().images), np.arange(7))


# Logits from a file


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("written_by", ["save_logits", "savez", "savez_compressed", "safetensors"])
def test_saved_logits_are_looked_up_by_sample(tmp_path: Path, written_by: str, dtype: Any) -> None:
    logits = np.random.default_rng(0).standard_normal((7, 5)).astype(dtype)
    file = tmp_path / "teacher.npz"
    if written_by == "save_logits":
        save_logits(file, logits)
    elif written_by == "safetensors":
        safetensors.write(file, {"logits": logits})
    else:
        getattr(np, written_by)(file, logits=logits)
    indices = np.array([3, 0, 6, 3])
    for teach in (saved_logits(file, train()), teacher(file, train(), STUDENT)):
        found = teach(np.zeros((4, 3, 16, 16)), indices)
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, logits.astype(np.float32)[[3, 0, 6, 3]])


def test_numpy_reads_what_is_saved_and_a_failure_leaves_the_old_file(tmp_path: Path) -> None:
    logits = np.random.default_rng(0).standard_normal((7, 5))
    save_logits(tmp_path / "a.npz", logits)
    with np.load(tmp_path / "a.npz") as found:
        assert found.files == ["logits"]
        np.testing.assert_array_equal(found["logits"], logits)
    for wrong in (logits[0], logits.astype(np.int64), logits * np.inf):
        with pytest.raises(ValueError, match="logits have to be"):
            save_logits(tmp_path / "a.npz", wrong)
    assert [file.name for file in tmp_path.iterdir()] == ["a.npz"]
    np.testing.assert_array_equal(saved_logits(tmp_path / "a.npz", train())(logits, np.arange(7)), logits.astype("f4"))


def test_logits_of_other_images_or_another_order_are_refused(tmp_path: Path) -> None:
    logits, images = np.random.default_rng(0).standard_normal((7, 5)), train()
    save_logits(tmp_path / "a.npz", logits, images)
    assert saved_logits(tmp_path / "a.npz", images)(logits, np.array([2])).shape == (1, 5)
    with pytest.raises(DataError, match="made for other images, or in another order"):
        saved_logits(tmp_path / "a.npz", images.subset([1, 0, 2, 3, 4, 5, 6]))


def nan_in_row_2() -> Any:
    logits = np.zeros((7, 5))
    logits[2, 1], logits[4] = np.nan, np.inf
    return logits


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"other": np.zeros((7, 5))}, r"has no array 'logits': save it with numpy.savez\(NAME, logits=...\)"),
        ({"logits": np.zeros((7, 5), np.int64)}, "float16, float32 or float64, not int64"),
        ({"logits": np.zeros((7, 4))}, r"logits \(7, 4\) have to be \(7, 5\)"),
        ({"logits": np.zeros((8, 5))}, r"logits \(8, 5\) have to be \(7, 5\)"),
        ({"logits": np.zeros(35)}, r"logits \(35,\) have to be \(7, 5\)"),
        ({"logits": nan_in_row_2()}, "2 rows are not finite in float32, the first is row 2"),
        ({"logits": np.full((7, 5), 1e300)}, "7 rows are not finite in float32, the first is row 0"),
    ],
)
def test_logits_that_do_not_fit_are_named(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(DataError, match=message):
        saved_logits(tmp_path / "a.npz", train())


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("logits")
    for name in ("nowhere.npz", "text"):
        with pytest.raises(CheckpointError, match=name):
            teacher(tmp_path / name, train(), STUDENT)
        with pytest.raises(CheckpointError, match=name):
            saved_logits(tmp_path / name, train())


# Checkpoints


def written(path: Path, kind: str, statistics: Any) -> tuple[Any, Any]:
    """Write a teacher whose images had these statistics; return its configuration and parameters."""
    model = deit if kind in ("our DeiT", "deit") else vit
    config, params = example(model)
    about = {"preprocessing": Preprocessing((16, 16), 3, *statistics).to_json(), "class_names": list(NAMES)}
    if kind in ("ours", "our DeiT"):
        own.save(path, config, params, about)
    elif kind == "a run's folder":
        path.mkdir()
        own.save(path / "checkpoint.safetensors", config, params, about)
    elif kind == "converted from deit's":
        convert.save_as(path, config, params, "timm", {"prepared_as": "deit"})
    elif kind == "timm, converted from ours":
        convert.save_as(path, config, params, "timm", {"prepared_as": "numpy_vit", **about})
    else:
        safetensors.write(path, tree.flatten(params))
    if kind == "timm with config.json":
        cfg = {"mean": statistics[0], "std": statistics[1]}
        (path.parent / "config.json").write_text(json.dumps({"pretrained_cfg": cfg}))
    return config, params


@pytest.mark.parametrize(
    ("kind", "statistics"),
    [
        ("ours", (OWN.mean, OWN.std)),
        ("our DeiT", (OWN.mean, OWN.std)),
        ("a run's folder", (OWN.mean, OWN.std)),
        ("timm", HALF),
        ("deit", IMAGENET),
        ("timm with config.json", (OWN.mean, OWN.std)),
        ("converted from deit's", IMAGENET),
        ("timm, converted from ours", (OWN.mean, OWN.std)),
    ],
)
def test_a_checkpoint_sees_what_it_was_trained_on(tmp_path: Path, kind: str, statistics: Any) -> None:
    config, params = written(tmp_path / "teacher.safetensors", kind, statistics)
    data = train()
    images = STUDENT.apply(data.images)
    found = teacher(tmp_path / "teacher.safetensors", data, STUDENT)(images, np.arange(7))
    model = deit if isinstance(config, deit.Config) else vit
    expected = model.predict(params, Preprocessing((16, 16), 3, *statistics).apply(data.images), config)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
    assert np.abs(expected - model.predict(params, images, config)).max() > 0.01


def test_a_grey_teacher_has_the_mean_of_its_family_s_statistics(tmp_path: Path) -> None:
    config, params = example(in_chans=1)
    safetensors.write(tmp_path / "a", tree.flatten(params))
    grey = Preprocessing((16, 16), 1, (0.3,), (0.2,))
    images = train().images[:, :1]
    data = Dataset("grey train", images, np.zeros(7, np.int64), NAMES)
    found = teacher(tmp_path / "a", data, grey)(grey.apply(images), np.arange(7))
    expected = vit.predict(params, Preprocessing((16, 16), 1, (0.5,), (0.5,)).apply(images), config)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("fields", "about", "message"),
    [
        ({"num_classes": 4}, {}, "gives 4 logits, the data has 5 classes"),
        ({"num_classes": 0}, {}, "gives 0 logits, the data has 5 classes"),
        ({}, {"class_names": list("abced")}, "was trained on classes .*'e', 'd'.*, the data has .*'d', 'e'"),
        ({"image_size": 20}, {}, r"takes images \(C, Y, X\) of \(3, 20, 20\), the student sees \(3, 16, 16\)"),
        ({"in_chans": 1}, {}, r"takes images \(C, Y, X\) of \(1, 16, 16\)"),
        ({}, {}, "does not say how its images are normalised"),
        ({}, {"preprocessing": {"size": 3}}, "stored preprocessing needs the keys"),
    ],
)
def test_checkpoints_that_do_not_fit_are_named(
    tmp_path: Path, fields: dict[str, Any], about: dict[str, Any], message: str
) -> None:
    config, params = example(**fields)
    own.save(tmp_path / "a", config, params, about)
    with pytest.raises(DataError, match=message):
        teacher(tmp_path / "a", train(), STUDENT)


def test_class_names_are_compared_where_both_are_known(tmp_path: Path) -> None:
    config, params = example()
    own.save(tmp_path / "ours", config, params, {"preprocessing": OWN.to_json(), "class_names": list("abced")})
    safetensors.write(tmp_path / "theirs", tree.flatten(params))
    teacher(tmp_path / "ours", replace(train(), class_names=tuple("abced")), STUDENT)
    teacher(tmp_path / "theirs", replace(train(), class_names=tuple("abced")), STUDENT)


def test_nobody_knows_how_four_channels_are_normalised(tmp_path: Path) -> None:
    _, params = example(in_chans=4)
    safetensors.write(tmp_path / "a", tree.flatten(params))
    data = Dataset("four", np.zeros((7, 4, 16, 16), np.uint8), np.zeros(7, np.int64), NAMES)
    with pytest.raises(CheckpointError, match="takes 4 channels: image files give 1"):
        teacher(tmp_path / "a", data, Preprocessing((16, 16), 4, (0.5,) * 4, (0.5,) * 4))


def test_a_student_moves_towards_its_teacher() -> None:
    """Ten steps of plain descent on the teacher's part alone: more images are taken for what the teacher says."""
    config, params = example()
    _, other = example()
    student = tree.map(lambda a: a[::-1].copy() if a.ndim == 2 else a.copy(), other)
    data = train(40)
    images = STUDENT.apply(data.images)
    logits = model_teacher(vit, params, config, OWN, STUDENT)(images, np.arange(40))
    losses = []
    for _ in range(10):
        objective = Distillation(CrossEntropy(data.labels), logits, "soft", 1.0, 2.0)
        found = objective_gradients(vit, student, config, images, objective)
        losses.append(found.loss)
        student = tree.map(lambda a, g: a - 0.02 * g, student, found.grads)
    assert losses[-1] < 0.5 * losses[0]
