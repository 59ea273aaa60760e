"""A study's folder: what was asked for, and the runs that have ended, so that an interrupted study goes on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from numpy_vit import __version__, files
from numpy_vit.data.selection import Selection
from numpy_vit.errors import DataError
from numpy_vit.training import teachers
from numpy_vit.training.run_folder import fingerprint
from numpy_vit.training.studies import Run
from numpy_vit.training.task import Task

STUDY, PICTURE = "study.json", "study.png"


@dataclass(frozen=True)
class StudyFolder:
    """A folder, and the settings of its study as plain values of JSON."""

    path: Path
    settings: dict[str, Any]

    def read(self) -> list[Run]:
        """Return the runs that have ended; none where there is no study yet.

        Raises
        ------
        DataError : the folder holds a study with other settings, or its file is broken.
        """
        file = self.path / STUDY
        if not file.exists():
            return []
        try:
            about = json.loads(file.read_text())
            settings, runs = about["settings"], [_run(stored) for stored in about["runs"]]
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"{file} is broken: {error!r}; begin the study anew with another --out") from error
        if not isinstance(settings, dict):
            raise DataError(f"{file} is broken: it holds no settings; begin the study anew with another --out")
        if difference := _first_difference(settings, self.settings):
            raise DataError(
                f"{self.path} holds a study with other settings: {difference}; "
                "go on with its own, or choose another folder with --out"
            )
        names = [(run.arm, run.seed) for run in runs]
        if len(set(names)) < len(names) or not {run.arm for run in runs} <= self.settings["arms"].keys():
            raise DataError(f"{file} is broken: runs twice, or of other arms; begin the study anew with another --out")
        return runs

    def write(self, runs: Sequence[Run], summary: Mapping[str, Any] | None = None) -> None:
        """Write the settings, the runs and, where the study is finished, what it says: whole or not at all."""
        self.path.mkdir(parents=True, exist_ok=True)
        about = {
            "numpy_vit": __version__,
            "settings": self.settings,
            "runs": [asdict(run) for run in runs],
            "summary": summary,
        }
        files.write_bytes(self.path / STUDY, (json.dumps(about, indent=2) + "\n").encode())


def settings(name: str, selection: Selection, arms: Mapping[str, Task], teacher: str | None = None) -> dict[str, Any]:
    """Return all that decides what a study's runs reach, as plain values of JSON; the number of seeds does not."""
    first = next(iter(arms.values()))
    about = {
        "study": name,
        "data": {**selection.to_json(), "fingerprint": fingerprint(first.data)},
        "preprocessing": first.preprocessing.to_json(),
        "teacher": None if teacher is None else {"file": str(teacher), "checksum": teachers.checksum(teacher)},
        "arms": {label: {"model": asdict(task.config), "recipe": _seedless(task)} for label, task in arms.items()},
    }
    plain: dict[str, Any] = json.loads(json.dumps(about))  # tuples become lists, as they will be when they are read
    return plain


def _seedless(task: Task) -> dict[str, Any]:
    return {key: value for key, value in asdict(task.recipe).items() if key != "seed"}


def _run(stored: dict[str, Any]) -> Run:
    run = Run(**stored)
    plain = isinstance(run.arm, str) and type(run.seed) is int and type(run.parameters) is int
    if not plain or not isinstance(run.last, dict) or not 0 <= run.accuracy <= 1 or not run.seconds >= 0:
        raise ValueError(f"a run of {run.arm!r} with seed {run.seed!r} has values that cannot be")
    return run


def _first_difference(there: Any, here: Any, where: str = "") -> str | None:
    """Say which setting differs first, and how; None where they are equal."""
    if not (isinstance(there, dict) and isinstance(here, dict)):
        return None if there == here else f"{where} is {json.dumps(there)} there and {json.dumps(here)} here"
    for key in {**here, **there}:
        inner = f"{where}, {key}" if where else key
        if (key in there) != (key in here):
            return f"{inner} is {'there' if key in there else 'here'} only"
        if difference := _first_difference(there[key], here[key], inner):
            return difference
    return None
