"""Studies compare what they say they compare: arms that differ in one thing, with the same seeds."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from numpy_vit.data import Split, load
from numpy_vit.training import loop, studies
from numpy_vit.training.finite import NotFiniteError
from numpy_vit.training.studies import STUDIES, Run
from numpy_vit.training.task import Task

VARIED: dict[str, set[str]] = {
    "patch-size": {"patch_size"},
    "heads": {"num_heads"},
    "depth": {"depth"},
    "positions": {"pos_embed"},
    "norm": {"block", "warmup_epochs"},
    "pooling": {"class_token", "global_pool"},
    "augmentation": {"affine"},
    "distillation": {"distill", "distill_alpha", "taught"},
}


@pytest.fixture(autouse=True)
def teacher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Logits for the few digits, in the folder where the tests run."""
    monkeypatch.chdir(tmp_path)
    np.savez("teacher.npz", logits=np.random.default_rng(0).normal(size=(50, 10)))
    return "teacher.npz"


def arms(name: str, data: Split, epochs: int = 1) -> dict[str, Task]:
    teacher = "teacher.npz" if STUDIES[name].needs_teacher else None
    return studies.tasks(STUDIES[name], studies.recipe("digits", epochs), data, teacher=teacher)


def run_of(arm: str, seed: int, accuracy: float, seconds: float = 1.0) -> Run:
    return Run(arm, seed, 100, accuracy, seconds, {"epoch": 1, "test_accuracy": accuracy})


@pytest.mark.parametrize("name", STUDIES)
def test_the_arms_differ_in_what_the_study_asks_about(name: str, few_digits: Split) -> None:
    made = arms(name, few_digits)
    assert len(made) >= 2
    plain = [
        {**asdict(task.config), **asdict(task.recipe), "taught": task.teacher is not None} for task in made.values()
    ]
    varied = {key for key in plain[0] if len({repr(values[key]) for values in plain}) > 1}
    assert varied == VARIED[name]
    assert len({repr(values) for values in plain}) == len(made)  # no arm twice
    assert STUDIES[name].question.endswith("?")


def test_a_teacher_is_named_where_one_is_needed(few_digits: Split, teacher: str) -> None:
    base = studies.recipe("digits", 1)
    with pytest.raises(ValueError, match="name its run with --teacher"):
        studies.tasks(STUDIES["distillation"], base, few_digits)
    with pytest.raises(ValueError, match="leave out --teacher"):
        studies.tasks(STUDIES["heads"], base, few_digits, teacher=teacher)


def test_all_studies_are_there() -> None:
    assert STUDIES.keys() == VARIED.keys()


def test_the_norm_study_crosses_both() -> None:
    made = arms("norm", load("digits"), 40)
    found = {label: (task.config.block, task.recipe.warmup_epochs) for label, task in made.items()}
    assert found == {
        "pre-norm, warm-up": ("pre_norm", 2),
        "pre-norm, no warm-up": ("pre_norm", 0),
        "post-norm, warm-up": ("post_norm", 2),
        "post-norm, no warm-up": ("post_norm", 0),
    }


def test_without_augmentation_a_batch_is_the_images_themselves(few_digits: Split) -> None:
    made = arms("augmentation", few_digits)
    indices = np.arange(8)
    with_, without = (made[label].goal.prepare(made[label], indices, 0, 0, 0, np.float64) for label in made)
    same = made["without"].preprocessing.apply(few_digits.train.take(indices).images, np.float64)
    assert without.images.tobytes() == same.tobytes()
    assert (with_.images != same).any(axis=(1, 2, 3)).all()


@pytest.mark.parametrize("data", ["mnist:x", "fashion-mnist", "cifar10", "folder:x", "shapes:50"])
def test_without_augmentation_no_recipe_augments(data: str) -> None:
    """What changes the images is off, whichever data set's recipe it is."""
    plain = replace(studies.recipe(data, 2), **STUDIES["augmentation"].arms["without"].recipe)
    assert not (plain.padding or plain.flip or plain.affine or plain.crop_scale or plain.auto_augment)
    assert not (plain.color_jitter or plain.erase or plain.mixup or plain.cutmix)


def test_other_images_are_cut_into_as_many_patches() -> None:
    data = load("shapes:10", size=(16, 32))
    found = {label: task.config.patch for label, task in arms("patch-size", data).items()}
    assert found == {"8x8 patches": (2, 4), "4x4 patches": (4, 8), "2x2 patches": (8, 16)}
    with pytest.raises(ValueError, match=r"28x28 cannot be cut into 8x8 patches: .* --image-size 32"):
        arms("patch-size", load("shapes:10", size=28))
    assert arms("heads", load("shapes:10", size=28))["1 head"].config.patch == (7, 7)


def test_a_shorter_run_warms_up_shorter() -> None:
    assert studies.recipe("digits").warmup_epochs == 2
    assert studies.recipe("digits", 10).warmup_epochs == 0.5
    assert studies.recipe("digits", 80).warmup_epochs == 2
    assert studies.recipe("fashion-mnist").epochs == 45
    with pytest.raises(ValueError, match="epochs has to be at least 1"):
        studies.recipe("digits", 0)


def test_runs_are_those_of_the_loop_with_their_seeds(few_digits: Split) -> None:
    made = arms("pooling", few_digits)
    found = list(studies.run(made, 2))
    assert [(run.seed, run.arm) for run in found] == [(seed, label) for seed in (0, 1) for label in made]
    for run in found[-2:]:
        task = replace(made[run.arm], recipe=replace(made[run.arm].recipe, seed=run.seed))
        state = loop.start(task)
        rows: list[loop.Row] = []
        loop.train(task, state, lambda *_: None, lambda _, row, rows=rows: rows.append(row))
        assert run.accuracy == rows[-1]["test_accuracy"]
        assert run.last["train_loss"] == rows[-1]["train_loss"]
        assert run.parameters == state.flat.size
    losses = {(run.arm, run.seed): run.last["train_loss"] for run in found}
    assert len(set(losses.values())) == len(losses)  # every arm and every seed trains something else
    again = {(run.arm, run.seed): run.last["train_loss"] for run in studies.run(made, 2, finished=[("mean", 0)])}
    assert again == {key: loss for key, loss in losses.items() if key != ("mean", 0)}


def test_a_run_that_diverges_is_a_result(few_digits: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    def train(*_: Any) -> bool:
        raise NotFiniteError("the loss is nan at step 3")

    monkeypatch.setattr(loop, "train", train)
    run = next(studies.run(arms("heads", few_digits), 1))
    assert run.not_finite == "the loss is nan at step 3"
    assert 0 <= run.accuracy <= 1
    assert run.last == {}


def test_the_summary_by_hand(few_digits: Split) -> None:
    """Against the best, each arm's differences are (-2, -4, -6) and (-1, 1, -3) points."""
    made = arms("pooling", few_digits)
    values = {"class token": (0.90, 0.91, 0.92), "mean": (0.92, 0.95, 0.98), "map": (0.91, 0.96, 0.95)}
    runs = [run_of(arm, seed, values[arm][seed], seconds=seed + 1.0) for seed in (2, 0, 1) for arm in reversed(values)]
    found = studies.summary(made, runs)
    assert found["seeds"] == [0, 1, 2]
    assert found["best"] == "mean"
    assert [arm["accuracies"] for arm in found["arms"]] == [list(values[arm]) for arm in made]
    first = found["arms"][0]
    assert (first["least"], first["greatest"], first["seconds"], first["tokens"]) == (0.90, 0.92, 2.0, 17)
    assert first["mean"] == pytest.approx(0.91)
    assert first["deviation"] == pytest.approx(0.01)
    token, attention = found["against_best"]
    assert token["difference"] == pytest.approx(-0.04)
    assert token["half_width"] == pytest.approx(4.303 * 0.02 / 3**0.5)
    assert attention["difference"] == pytest.approx(-0.01)
    assert attention["half_width"] == pytest.approx(4.303 * 0.02 / 3**0.5)
    assert not token["beyond_the_spread"]  # 4.97 points, of 3 seeds
    assert not attention["beyond_the_spread"]
    assert json.loads(json.dumps(found)) == found


def test_more_seeds_make_a_difference_certain(few_digits: Split) -> None:
    made = arms("augmentation", few_digits)
    pattern = (0.0, 0.02, -0.02)
    for repeats, beyond in ((1, False), (4, True)):
        runs = [run_of("with", seed, 0.9 + pattern[seed % 3]) for seed in range(3 * repeats)]
        runs += [run_of("without", seed, 0.88) for seed in range(3 * repeats)]
        assert studies.summary(made, runs)["against_best"][0]["beyond_the_spread"] is beyond


def test_arms_with_other_seeds_are_not_compared(few_digits: Split) -> None:
    made = arms("augmentation", few_digits)
    for runs in ([], [run_of("with", 0, 0.9)], [run_of("with", 0, 0.9), run_of("without", 1, 0.8)]):
        with pytest.raises(ValueError, match="same seeds"):
            studies.summary(made, runs)
