"""Freed memory that is kept: pages that are not faulted in again, and nothing where it cannot be or nobody asked."""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from numpy_vit.training import allocator

FAULTS = """
import resource
import sys
import numpy as np
from numpy_vit.training import allocator

def rounds(count):
    for _ in range(count):
        held = [np.ones(1 << 20) for _ in range(5)]  # 8 MB each, more than glibc keeps by itself

if sys.argv[1] == "True":
    assert allocator.keep_freed_memory()
rounds(2)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
rounds(4)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""

IMPORT_ALL = """
import pkgutil
import numpy_vit
from numpy_vit.training import allocator

def called():
    raise SystemExit("an import called keep_freed_memory")

allocator.keep_freed_memory = called
modules = [module.name for module in pkgutil.walk_packages(numpy_vit.__path__, "numpy_vit.")]
for name in modules:
    if not name.endswith("__main__"):
        __import__(name)
assert "numpy_vit.cli.main" in modules and "numpy_vit.bench.contender" in modules
"""


def run(code: str, *arguments: str) -> str:
    environment = {**os.environ, "NUMPY_MADVISE_HUGEPAGE": "0"}  # pages of 4 kB, so that there are many
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
def test_arrays_come_back_without_page_faults() -> None:
    """Twenty arrays of 8 MB: 40960 pages, unless the system's own pages are larger."""
    kept, given_back = int(run(FAULTS, "True")), int(run(FAULTS, "False"))
    assert kept < 20
    assert given_back > kept + 4 * 5


def refuse(name: Any) -> Any:
    raise OSError("no such library")


@pytest.mark.parametrize(
    ("system", "library"),
    [
        ("darwin", lambda name: SimpleNamespace(mallopt=lambda option, value: 1)),
        ("win32", lambda name: SimpleNamespace(mallopt=lambda option, value: 1)),
        ("linux", refuse),
        ("linux", lambda name: SimpleNamespace()),  # musl has no mallopt
        ("linux", lambda name: SimpleNamespace(mallopt=lambda option, value: int(option != -8))),
    ],
)
def test_it_says_where_it_could_not(monkeypatch: Any, system: str, library: Any) -> None:
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(ctypes, "CDLL", library)
    assert allocator.keep_freed_memory() is False


def test_no_import_of_the_library_changes_the_process() -> None:
    run(IMPORT_ALL)
