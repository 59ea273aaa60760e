"""Whole or nothing: whatever happens while a file is written, the old bytes or the new ones are there."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from numpy_vit import files

OLD, NEW = b"the old file", b"the new file, longer" * 1000


@pytest.fixture
def target(tmp_path):
    path = tmp_path / "model.bin"
    path.write_bytes(OLD)
    return path


def names(path):
    return sorted(entry.name for entry in path.parent.iterdir())


def test_the_new_file_replaces_the_old_one(target):
    files.write_bytes(target, NEW)
    assert target.read_bytes() == NEW
    assert names(target) == ["model.bin"]


def test_a_file_that_did_not_exist(tmp_path):
    path = tmp_path / "new.bin"
    files.write_bytes(str(path), NEW)
    assert path.read_bytes() == NEW
    assert names(path) == ["new.bin"]


def test_until_the_block_ends_the_old_file_is_there(target):
    with files.replacing(target) as file:
        file.write(NEW)
        file.flush()
        assert target.read_bytes() == OLD
    assert target.read_bytes() == NEW


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_failure_in_the_block_leaves_the_old_file_and_no_litter(target, error):
    with pytest.raises(error), files.replacing(target) as file:
        file.write(NEW)
        raise error
    assert target.read_bytes() == OLD
    assert names(target) == ["model.bin"]


def test_a_full_disk_leaves_the_old_file_and_no_litter(target, monkeypatch):
    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        files.write_bytes(target, NEW)
    assert target.read_bytes() == OLD
    assert names(target) == ["model.bin"]


def test_a_crash_in_the_middle_leaves_the_old_file(target):
    program = (
        "import os, sys\n"
        "from numpy_vit import files\n"
        "with files.replacing(sys.argv[1]) as file:\n"
        "    file.write(b'half of the new')\n"
        "    file.flush()\n"
        "    os._exit(3)\n"
    )
    root = Path(files.__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", program, str(target)], cwd=root, check=False, timeout=60)
    assert done.returncode == 3
    assert target.read_bytes() == OLD


def test_the_bytes_are_on_the_disk_before_the_name_changes(target, monkeypatch):
    events = []
    fsync, replace = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda handle: (events.append(os.fstat(handle).st_size), fsync(handle)))
    monkeypatch.setattr(Path, "replace", lambda self, to: (events.append("rename"), replace(self, to)))
    files.write_bytes(target, NEW)
    assert events[:2] == [len(NEW), "rename"]
    assert len(events) == (3 if os.name == "posix" else 2)  # and then the folder, so that the new name stays


@pytest.mark.skipif(os.name != "posix", reason="Windows has no umask")
def test_the_file_is_as_readable_as_any_other(tmp_path):
    plain, ours = tmp_path / "plain", tmp_path / "ours"
    plain.write_bytes(b"")
    files.write_bytes(ours, b"")
    assert stat.S_IMODE(ours.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)


def test_a_missing_folder_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        files.write_bytes(tmp_path / "nowhere" / "model.bin", NEW)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no folder to write to: '.*nowhere'"):
        files.write_bytes(tmp_path / "nowhere" / "a", b"1")
