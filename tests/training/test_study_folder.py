"""A study's folder keeps its runs, and takes those of no other study for its own."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from numpy_vit.data import Split
from numpy_vit.data.selection import Selection
from numpy_vit.errors import DataError
from numpy_vit.training import studies
from numpy_vit.training.studies import STUDIES, Run
from numpy_vit.training.study_folder import STUDY, StudyFolder, settings
from numpy_vit.training.task import Task

ONE = Run("1 head", 0, 100, 1 / 3, 2.5, {"epoch": 1, "test_accuracy": 1 / 3})


def arms(name: str, data: Split, epochs: int = 1) -> dict[str, Task]:
    return studies.tasks(STUDIES[name], studies.recipe("digits", epochs), data)


@pytest.fixture
def folder(few_digits: Split, tmp_path: Path) -> StudyFolder:
    return StudyFolder(tmp_path / "a", settings("heads", Selection("digits"), arms("heads", few_digits)))


def test_runs_come_back_as_they_were_written(folder: StudyFolder) -> None:
    assert folder.read() == []
    runs = [ONE, replace(ONE, arm="8 heads", not_finite="why", last={})]
    folder.write(runs, {"best": "1 head"})
    assert folder.read() == runs
    assert json.loads((folder.path / STUDY).read_text())["summary"] == {"best": "1 head"}
    assert [path.name for path in folder.path.iterdir()] == [STUDY]


@pytest.mark.parametrize(
    ("name", "epochs", "data", "words"),
    [
        ("depth", 1, "digits", 'study is "heads" there and "depth" here'),
        ("heads", 2, "digits", "arms, 1 head, recipe, epochs is 1 there and 2 here"),
        ("heads", 1, "shapes", 'data, name is "digits" there and "shapes" here'),
    ],
)
def test_other_settings_are_refused(
    folder: StudyFolder, few_digits: Split, name: str, epochs: int, data: str, words: str
) -> None:
    folder.write([])
    other = StudyFolder(folder.path, settings(name, Selection(data), arms(name, few_digits, epochs)))
    with pytest.raises(DataError, match=words):
        other.read()


def test_other_images_are_refused(folder: StudyFolder, few_digits: Split) -> None:
    folder.write([])
    others = Split(few_digits.train, few_digits.test.take(range(19)))
    with pytest.raises(DataError, match="fingerprint is"):
        StudyFolder(folder.path, settings("heads", Selection("digits"), arms("heads", others))).read()


def test_another_teacher_in_the_same_file_is_refused(folder: StudyFolder, few_digits: Split, tmp_path: Path) -> None:
    file, shown = tmp_path / "teacher.npz", arms("heads", few_digits)
    file.write_bytes(b"one")
    taught = StudyFolder(folder.path, settings("heads", Selection("digits"), shown, str(file)))
    taught.write([])
    assert taught.read() == []
    file.write_bytes(b"two")
    with pytest.raises(DataError, match='teacher, checksum is "7a6c86f1" there and "11ca8a66" here'):
        StudyFolder(folder.path, settings("heads", Selection("digits"), shown, str(file))).read()


RUN = asdict(ONE)


@pytest.mark.parametrize(
    "runs",
    [
        None,
        [7],
        [{**RUN, "more": 1}],
        [{**RUN, "accuracy": 1.5}],
        [{**RUN, "accuracy": float("nan")}],
        [{**RUN, "seconds": "long"}],
        [{**RUN, "seed": 0.0}],
        [{**RUN, "arm": "3 heads"}],
        [RUN, RUN],
    ],
)
def test_a_broken_file_is_refused_and_left_alone(folder: StudyFolder, runs: Any) -> None:
    folder.write([])
    file = folder.path / STUDY
    for text in (json.dumps({"settings": folder.settings, "runs": runs}), '{"runs": [', "[]", '{"settings": 1}'):
        file.write_text(text)
        with pytest.raises(DataError, match="broken"):
            folder.read()
        assert file.read_text() == text
