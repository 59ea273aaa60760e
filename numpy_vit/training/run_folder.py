"""A run's folder: what was asked for, how it went, the model, and all that is needed to go on."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from numpy_vit import __version__, files
from numpy_vit.checkpoints import own, safetensors
from numpy_vit.data import Preprocessing, Split
from numpy_vit.data.selection import Selection
from numpy_vit.errors import CheckpointError, DataError
from numpy_vit.models import deit, mae, vit
from numpy_vit.training import classification, reconstruction, teachers
from numpy_vit.training.loop import Row, State, Task, start
from numpy_vit.training.recipe import Recipe

CONFIG, METRICS, CHECKPOINT, STATE = "config.json", "metrics.jsonl", "checkpoint.safetensors", "optimizer.safetensors"
_COUNTERS = ("epoch", "batch", "loss_sum", "correct", "seen", "seconds", "epoch_seconds", "waited")
_MODELS: dict[str, ModuleType] = {"vit": vit, "deit": deit, "mae": mae}
_LATER = {"waited": 0.0}  # counters that folders of earlier versions lack


@dataclass(frozen=True)
class RunFolder:
    """A folder, the images that its run trains on, and the files that it started from.

    `init` and `teacher` are those of the command line.
    """

    path: Path
    data: Selection
    init: str | None = None
    teacher: str | None = None

    def create(self, task: Task) -> None:
        """Make the folder and write config.json.

        Raises
        ------
        DataError : the folder holds a run already.
        """
        if (self.path / CONFIG).exists():
            raise DataError(
                f"{self.path} holds a run already: go on with --resume {self.path}, or choose another folder with --out"
            )
        self.path.mkdir(parents=True, exist_ok=True)
        about = {
            "numpy_vit": __version__,
            "data": {**self.data.to_json(), "fingerprint": fingerprint(task.data)},
            "architecture": task.model.__name__.rpartition(".")[2],
            "model": asdict(task.config),
            "init": self.init,
            "teacher": None if self.teacher is None else str(Path(self.teacher).absolute()),
            "teacher_checksum": None if self.teacher is None else teachers.checksum(self.teacher),
            "recipe": asdict(task.recipe),
            "preprocessing": task.preprocessing.to_json(),
            "class_names": list(task.data.train.class_names),
        }
        files.write_bytes(self.path / CONFIG, (json.dumps(about, indent=2) + "\n").encode())

    def save(self, task: Task, state: State) -> None:
        """Write the model and, after it, all that a resumed run needs; each file whole or not at all.

        optimizer.safetensors holds the weights once more: a crash between the two files then leaves one that is
        complete in itself.
        """
        extra = {
            "data": self.data.name,
            "selection": self.data.to_json(),
            "preprocessing": task.preprocessing.to_json(),
            "class_names": list(task.data.train.class_names),
            "epoch": state.epoch,
        }
        _, config, params = task.goal.export(task, state.best_params)
        own.save(self.path / CHECKPOINT, config, params, extra)
        tensors = {"params": state.flat, **{f"optimizer.{name}": array for name, array in state.optimizer.items()}}
        if state.average is not None:
            tensors["average"] = state.average
        where = {name: getattr(state, name) for name in _COUNTERS}
        safetensors.write(self.path / STATE, tensors, {"state": json.dumps(where)})

    def add_row(self, row: Row) -> None:
        """Add an epoch to metrics.jsonl."""
        path = self.path / METRICS
        old = path.read_bytes() if path.exists() else b""
        files.write_bytes(path, old + (json.dumps(row) + "\n").encode())

    def rows(self) -> list[Row]:
        """Return the epochs of metrics.jsonl."""
        return read_rows(self.path)


def resume(
    path: Path, workers: int, on_progress: Callable[[int, int], None] = lambda done, total: None
) -> tuple[RunFolder, Task, State]:
    """Return a run as it was saved; metrics of epochs after the saved state are dropped.

    Parameters
    ----------
    on_progress : called with the number of images that have been read, and of all

    Raises
    ------
    DataError : no run there, or the data set is not the one that the run began with.
    CheckpointError : the files do not belong together.
    """
    about = _read_config(path)
    try:
        model = _MODELS[about.get("architecture", "vit")]
        config = _config(model, about["model"])
        recipe = Recipe(**_known(Recipe, about["recipe"]))
        selection, expected = Selection.from_json(about["data"]), about["data"]["fingerprint"]
        preprocessing = Preprocessing.from_json(about["preprocessing"])
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path / CONFIG} is broken: {error!r}") from error
    data = selection.load(on_progress)
    if fingerprint(data) != expected:
        raise DataError(
            f"{selection.name} is not the data that {path} began with: its fingerprint differs; begin a new run"
        )
    folder = RunFolder(path, selection, about.get("init"), about.get("teacher"))
    goal = reconstruction if model is mae else classification
    task = Task(goal, model, config, recipe, data, preprocessing, workers)
    if folder.teacher is not None:
        if about.get("teacher_checksum") not in (None, teachers.checksum(folder.teacher)):
            raise DataError(f"{folder.teacher} is not the teacher that {path} began with: put that back, or begin anew")
        task = replace(task, teacher=teachers.teacher(folder.teacher, data.train, preprocessing, workers))
    state = start(task)
    _restore(path / STATE, state)
    kept = [json.dumps(row) + "\n" for row in folder.rows() if row["epoch"] <= state.epoch]
    files.write_bytes(path / METRICS, "".join(kept).encode())
    return folder, task, state


def read_rows(folder: Path) -> list[Row]:
    """Return the epochs that a run's metrics.jsonl tells of; none where there is no such file.

    Raises
    ------
    DataError : a line that is no object of an epoch's numbers, or bytes that are no text.
    """
    path, rows = folder / METRICS, []
    try:
        lines = path.read_text("utf-8").splitlines() if path.is_file() else []
    except ValueError as error:
        raise DataError(f"{path} is no text: {error}") from error
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
        except ValueError as error:
            raise DataError(f"{path}, line {number} is broken: {error}; take it out") from error
        if not isinstance(row, dict) or "epoch" not in row:
            raise DataError(f"{path}, line {number} is {line[:40]!r}, not an object of an epoch's numbers: take it out")
        rows.append(row)
    return rows


def fingerprint(data: Split) -> str:
    """Return a checksum of all images and labels, in their order."""
    return f"{data.test.fingerprint(data.train.fingerprint()):08x}"


def _read_config(path: Path) -> dict[str, Any]:
    try:
        about = json.loads((path / CONFIG).read_text())
    except FileNotFoundError:
        raise DataError(f"{path} holds no run: {CONFIG} is missing; begin one with --out {path}") from None
    except ValueError as error:
        raise CheckpointError(f"{path / CONFIG} is not JSON: {error}") from error
    if not isinstance(about, dict):
        raise CheckpointError(f"{path / CONFIG} is not a run's configuration")
    return about


def _config(model: ModuleType, stored: dict[str, Any]) -> Any:
    if model is mae:
        stored = {**stored, "encoder": vit.Config(**_known(vit.Config, stored["encoder"]))}
    return model.Config(**_known(model.Config, stored))


def _known(kind: type, stored: dict[str, Any]) -> dict[str, Any]:
    names = {field.name for field in fields(kind)}
    if unknown := set(stored) - names:
        raise ValueError(f"unknown fields {', '.join(sorted(unknown))}")
    return {key: tuple(value) if isinstance(value, list) else value for key, value in stored.items()}


def _restore(path: Path, state: State) -> None:
    tensors, metadata = safetensors.read(path)
    arrays = {"params": state.flat, **{f"optimizer.{name}": array for name, array in state.optimizer.items()}}
    if state.average is not None:
        arrays["average"] = state.average
    shapes = {name: (array.shape, array.dtype) for name, array in arrays.items()}
    if {name: (array.shape, array.dtype) for name, array in tensors.items()} != shapes:
        raise CheckpointError(f"{path} does not belong to the run's configuration: its arrays differ from {shapes}")
    try:
        where = _LATER | json.loads(metadata["state"])
        counters = {name: where[name] for name in _COUNTERS}
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path} does not say where the run stood: {error!r}") from error
    for name, array in arrays.items():
        array[...] = tensors[name]
    for name, value in counters.items():
        setattr(state, name, value)
