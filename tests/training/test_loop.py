"""The loop: determinism, resuming to the same bits, and what it does when numbers go bad."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from numpy_vit import tree
from numpy_vit.checkpoints import safetensors
from numpy_vit.data.selection import Selection
from numpy_vit.training import classification, loop
from numpy_vit.training.finite import NotFiniteError, first_bad
from numpy_vit.training.loop import Row, State, Task
from numpy_vit.training.objectives import CrossEntropy
from numpy_vit.training.run_folder import CONFIG, STATE, RunFolder, resume

MakeTask = Callable[..., Task]


def run(task: Task, state: State | None = None, stop_after: int | None = None) -> tuple[State, list[Row]]:
    """Train; stop after so many steps."""
    state = loop.start(task) if state is None else state
    rows: list[Row] = []
    steps: list[float] = []
    loop.train(
        task,
        state,
        lambda _, loss: steps.append(loss),
        lambda _, row: rows.append(row),
        lambda: stop_after is not None and len(steps) >= stop_after,
    )
    return state, rows


def timeless(rows: list[Row]) -> list[Row]:
    timed = ("seconds", "images_per_second", "data_share")
    return [{key: row[key] for key in row if key not in timed} for row in rows]


def test_the_same_seed_gives_the_same_bits_for_any_number_of_workers(small_task: MakeTask) -> None:
    (one, rows_one), (again, rows_again), (two, rows_two) = (run(small_task(workers)) for workers in (1, 1, 2))
    assert one.flat.tobytes() == again.flat.tobytes() == two.flat.tobytes()
    assert timeless(rows_one) == timeless(rows_again) == timeless(rows_two)
    other, _ = run(small_task(seed=4))
    assert other.flat.tobytes() != one.flat.tobytes()


@pytest.mark.parametrize("stop_after", [2, 4, 5, 8, 11])  # 4 steps an epoch: in mid-epoch and between two
@pytest.mark.parametrize(
    "recipe",
    [
        {},
        {"optimizer": "sgd", "lr": 0.05, "ema": 0.9},
        {"optimizer": "adam", "layer_decay": 0.8, "clip": None},
        {"mixup": 0.8, "cutmix": 1.0, "repeats": 2, "erase": 0.5, "patch_drop": 0.5, "padding": 0, "crop_scale": 0.5},
        {"freeze": "blocks.0,patch_embed", "flip": True, "label_smoothing": 0.1},
    ],
    ids=["adamw", "sgd with ema", "adam with layer decay", "DeiT's", "frozen"],
)
def test_a_resumed_run_ends_with_the_bits_of_an_uninterrupted_one(
    small_task: MakeTask, tmp_path: Path, recipe: dict[str, Any], stop_after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = small_task(**recipe)
    whole, rows = run(task)
    folder = RunFolder(tmp_path / "run", Selection("digits"))
    monkeypatch.setattr(Selection, "load", lambda *_: task.data)
    folder.create(task)
    stopped, first_rows = run(task, stop_after=stop_after)
    for row in first_rows:
        folder.add_row(row)
    folder.save(task, stopped)
    _, resumed_task, state = resume(folder.path, workers=2)
    assert (state.epoch, state.batch) == divmod(stop_after, 4)
    resumed, later_rows = run(resumed_task, state)
    assert resumed.flat.tobytes() == whole.flat.tobytes()
    assert tree.flatten(resumed.optimizer).keys() == tree.flatten(whole.optimizer).keys()
    for name, array in whole.optimizer.items():
        assert array.tobytes() == resumed.optimizer[name].tobytes()
    if whole.average is not None and resumed.average is not None:
        assert resumed.average.tobytes() == whole.average.tobytes()
    assert timeless(first_rows + later_rows) == timeless(rows)


def test_preparing_ahead_changes_no_bit(small_task: MakeTask, monkeypatch: pytest.MonkeyPatch) -> None:
    task = small_task(flip=True, affine=1.0)
    ahead, rows = run(task)

    @contextmanager
    def at_once(items: Iterable[Any], prepare: Callable[[Any], Any]) -> Iterator[Iterator[Any]]:
        yield map(prepare, items)

    monkeypatch.setattr(loop, "ahead", at_once)
    plain, plain_rows = run(task)
    assert ahead.flat.tobytes() == plain.flat.tobytes()
    assert timeless(rows) == timeless(plain_rows)
    assert all(0 < row["data_share"] < 1 for row in rows)


@pytest.mark.parametrize("how", ["should_stop", "interrupt", "broken data"])
def test_a_run_that_ends_early_leaves_no_thread(
    small_task: MakeTask, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    before = set(threading.enumerate())
    task, prepare, calls = small_task(), classification.prepare, [0]

    def third_fails(*arguments: Any) -> Any:
        calls[0] += 1
        if calls[0] == 3:
            raise OSError("the disk is gone")
        return prepare(*arguments)

    def interrupt(state: State, loss: float) -> None:
        if state.batch == 2:
            raise KeyboardInterrupt

    if how == "should_stop":
        state, _ = run(task, stop_after=2)
    else:
        state = loop.start(task)
        if how == "broken data":
            monkeypatch.setattr(classification, "prepare", third_fails)
        on_step = interrupt if how == "interrupt" else lambda state, loss: None
        with pytest.raises(KeyboardInterrupt if how == "interrupt" else OSError) as caught:
            loop.train(task, state, on_step, lambda state, row: None)
        if how == "broken data":
            assert caught.traceback[-1].name == "third_fails"
            assert calls == [3]
    assert set(threading.enumerate()) == before
    assert state.batch == 2  # the steps before it were done, so the state can be saved
    monkeypatch.undo()
    resumed, _ = run(task, state)
    assert resumed.flat.tobytes() == run(task)[0].flat.tobytes()


def test_folders_of_earlier_versions_resume(
    small_task: MakeTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = small_task()
    folder = RunFolder(tmp_path / "run", Selection("digits"))
    monkeypatch.setattr(Selection, "load", lambda *_: task.data)
    folder.create(task)
    folder.save(task, run(task, stop_after=6)[0])
    tensors, metadata = safetensors.read(folder.path / STATE)
    where = json.loads(metadata["state"])
    del where["waited"]
    safetensors.write(folder.path / STATE, tensors, {"state": json.dumps(where)})
    about = json.loads((folder.path / CONFIG).read_text())
    for later in ("architecture", "init", "teacher"):
        del about[later]
    for later in ("crop_scale", "mixup", "patch_drop", "freeze"):
        del about["recipe"][later]
    del about["model"]["patch_drop_rate"]
    (folder.path / CONFIG).write_text(json.dumps(about))
    _, _, state = resume(folder.path, workers=1)
    assert (state.epoch, state.batch, state.waited) == (1, 2, 0.0)


def test_every_parameter_moves_in_the_first_step(small_task: MakeTask) -> None:
    """All but the key bias, whose gradient is zero: a constant added to every key shifts all scores alike."""
    task = small_task(optimizer="sgd", lr=1.0, momentum=0.0, weight_decay=0.0, warmup_epochs=0, clip=None)
    state = loop.start(task)
    before = {key: leaf.copy() for key, leaf in tree.flatten(state.params).items()}
    run(task, state, stop_after=1)
    for key, leaf in tree.flatten(state.params).items():
        moved = leaf != before[key]
        if key.endswith("qkv.bias"):
            moved = np.delete(moved, slice(16, 32))
        assert moved.all() if leaf.ndim == 1 else moved.mean() > 0.95, key


def test_ema_is_what_is_evaluated(small_task: MakeTask) -> None:
    state, rows = run(small_task(ema=0.9))
    assert state.best_params is state.averaged
    plain, plain_rows = run(small_task())
    assert plain.best_params is plain.params
    assert plain.flat.tobytes() == state.flat.tobytes()  # averaging does not change the training
    assert rows[-1]["train_loss"] == plain_rows[-1]["train_loss"]
    assert rows[-1]["test_loss"] != plain_rows[-1]["test_loss"]


def test_a_run_learns(small_task: MakeTask) -> None:
    task = small_task(epochs=60, lr=1e-2, padding=0)
    _, rows = run(replace(task, config=replace(task.config, attn_drop_rate=0.0, drop_path_rate=0.0)))
    assert rows[0]["train_loss"] > 2
    assert rows[-1]["train_loss"] < 0.2
    assert rows[-1]["train_accuracy"] > 0.95


def test_each_epoch_sees_every_sample_once(small_task: MakeTask, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[np.ndarray[Any, Any]] = []
    prepare = classification.prepare
    monkeypatch.setattr(
        classification, "prepare", lambda task, indices, *rest: (seen.append(indices), prepare(task, indices, *rest))[1]
    )
    run(small_task(epochs=2))
    first, second = np.concatenate(seen[:4]), np.concatenate(seen[4:])
    assert sorted(first) == sorted(second) == list(range(50))
    assert first.tolist() != second.tolist()


def test_the_test_part_is_looked_at_as_often_as_asked_and_at_the_end(small_task: MakeTask) -> None:
    every, rows = run(small_task(epochs=5))
    seldom, fewer = run(small_task(epochs=5, test_every=2))
    assert ["test_loss" in row for row in rows] == [True] * 5
    assert ["test_loss" in row for row in fewer] == [False, True, False, True, True]
    assert every.flat.tobytes() == seldom.flat.tobytes()
    assert fewer[-1]["test_accuracy"] == rows[-1]["test_accuracy"]


def test_the_schedule_warms_up_and_ends_low(small_task: MakeTask) -> None:
    task = small_task(lr=1e-3)  # 16 steps, 4 of warm-up
    rates = [loop.learning_rate(task, step) for step in range(16)]
    np.testing.assert_allclose(rates[:4], [0.25e-3, 0.5e-3, 0.75e-3, 1e-3], rtol=1e-12)
    assert rates[3:] == sorted(rates[3:], reverse=True)
    assert rates[-1] == pytest.approx(0, abs=1e-9)


def test_a_loss_that_is_not_finite_stops_before_the_step_and_names_the_tensor(small_task: MakeTask) -> None:
    task = small_task()
    state = loop.start(task)
    state.params["blocks"][1]["mlp"]["fc1"]["bias"][:] = 1e30
    state.params["blocks"][1]["mlp"]["fc2"]["weight"][:] = 1e30
    before = state.flat.copy()
    with pytest.raises(NotFiniteError, match=r"step 1 \(epoch 1\).*activation blocks\.1\.mlp\.fc2.*learning rate"):
        run(task, state)
    assert state.flat.tobytes() == before.tobytes()


def test_the_first_bad_tensor_is_named(small_task: MakeTask) -> None:
    task = small_task()
    params = task.model.init(task.config, np.random.default_rng(0))
    batch = classification.prepare(task, np.arange(8), 0, 0, 0, np.float32)
    images, objective = batch.images, CrossEntropy(batch.labels)
    assert first_bad(task.model, params, task.config, images, objective) == ""
    bad = images.copy()
    bad[3, 0, 2, 2] = np.nan
    assert first_bad(task.model, params, task.config, bad, objective) == "the images"
    params["blocks"][0]["norm2"]["weight"][5] = np.inf
    assert first_bad(task.model, params, task.config, images, objective) == "parameter blocks.0.norm2.weight"
