"""numpy-vit data fetch, as a user runs it, from a server on this machine."""

from __future__ import annotations

import hashlib
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

Cli = Callable[..., subprocess.CompletedProcess[str]]
CONTENT = bytes(range(256)) * 4000
MD5 = hashlib.md5(CONTENT, usedforsecurity=False).hexdigest()
# The published files cannot be had in a test: the table gets this one in place of CIFAR-10's.  All else is the command.
PROGRAM = f"""
import sys
from numpy_vit.cli.main import main
from numpy_vit.data import registry
file = registry.PublishedFile("cifar-10-python.tar.gz", {len(CONTENT)}, "{MD5}")
registry.RELEASES["cifar10"] = registry.Release("a test", (file,), ("http://127.0.0.1:1/",))
sys.exit(main(sys.argv[1:]))
"""


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server_port}/mirror"
        self.asked: list[str | None] = []
        self.go_on = threading.Event()
        self.go_on.set()


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        asked = self.headers["Range"]
        self.server.asked.append(asked)
        if self.path != "/mirror/cifar-10-python.tar.gz":
            self.send_error(404)
            return
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0
        self.send_response(206 if asked else 200)
        self.send_header("Content-Length", str(len(CONTENT) - start))
        self.send_header("Content-Range", f"bytes {start}-{len(CONTENT) - 1}/{len(CONTENT)}")
        self.end_headers()
        middle = max(start, len(CONTENT) // 2)
        self.wfile.write(CONTENT[start:middle])
        self.wfile.flush()
        self.server.go_on.wait(60)
        self.wfile.write(CONTENT[middle:])

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running
        running.go_on.set()
        running.shutdown()
        thread.join()


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-W", "error", "-c", PROGRAM, "data", "fetch", *arguments]


@pytest.fixture
def fetch(tmp_path: Path) -> Cli:
    """Return a function that runs numpy-vit data fetch with a home of its own."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        there = {**os.environ, "HOME": str(tmp_path), "NUMPY_VIT_DATA": ""}
        return subprocess.run(
            command(*arguments), cwd=tmp_path, env=there, capture_output=True, text=True, timeout=60, check=False
        )

    return run


def test_a_data_set_is_fetched_once(fetch: Cli, server: Server, tmp_path: Path) -> None:
    first = fetch("cifar10", "--address", server.address)
    assert first.returncode == 0, first.stderr
    assert first.stderr == ""
    folder = tmp_path / ".cache" / "numpy_vit" / "cifar10"
    assert first.stdout.splitlines() == [
        f"cifar10: a test, 1.0 MB, to {folder}",
        "cifar-10-python.tar.gz: 1,024,000 bytes, checksum right",
        "train with: numpy-vit train --data cifar10",
    ]
    assert [path.name for path in folder.iterdir()] == ["cifar-10-python.tar.gz"]
    assert (folder / "cifar-10-python.tar.gz").read_bytes() == CONTENT
    again = fetch("cifar10")
    assert again.returncode == 0
    assert "cifar-10-python.tar.gz: is there already, checksum right" in again.stdout
    assert server.asked == [None]


def test_the_folder(fetch: Cli, server: Server, tmp_path: Path) -> None:
    result = fetch("cifar10", "--address", server.address, "--to", "my data")
    assert result.stdout.splitlines()[-1] == "train with: numpy-vit train --data 'cifar10:my data'"
    assert (tmp_path / "my data" / "cifar-10-python.tar.gz").read_bytes() == CONTENT


def test_ctrl_c_is_clean_and_the_same_command_goes_on(fetch: Cli, server: Server, tmp_path: Path) -> None:
    server.go_on.clear()
    arguments = ("cifar10", "--address", server.address, "--to", "here")
    pipe = subprocess.PIPE
    process = subprocess.Popen(command(*arguments), cwd=tmp_path, stdout=pipe, stderr=pipe, text=True)
    part, end = tmp_path / "here" / "cifar-10-python.tar.gz.part", time.monotonic() + 60
    while not part.exists():
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == ""
    assert out.splitlines()[-1] == "interrupted; the same command goes on where it was"
    kept = part.read_bytes()
    assert CONTENT.startswith(kept)
    server.go_on.set()
    result = fetch(*arguments)
    assert result.returncode == 0, result.stderr
    assert server.asked == [None, f"bytes={len(kept)}-" if kept else None]
    assert (tmp_path / "here" / "cifar-10-python.tar.gz").read_bytes() == CONTENT
    assert not part.exists()


def test_a_terminal_sees_progress(server: Server, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command("cifar10", "--address", server.address, "--to", "here"), cwd=tmp_path, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    seen = b""
    try:
        while piece := os.read(ours, 65536):
            seen += piece
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    assert process.wait(timeout=60) == 0
    assert b"\r\x1b[2Kcifar-10-python.tar.gz  " in seen
    assert b" MB of 1.0 MB  " in seen
    assert b"checksum right" in seen


def test_what_there_is(cli: Cli) -> None:
    result = cli("data", "fetch")
    assert result.returncode == 0
    lines = [line.split()[:4] for line in result.stdout.splitlines()]
    assert lines[1:5] == [
        ["mnist", "11.6", "MB", "4"],
        ["fashion-mnist", "30.9", "MB", "4"],
        ["cifar10", "170.5", "MB", "1"],
        ["cifar100", "169.0", "MB", "1"],
    ]
    assert "numpy-vit data fetch NAME" in result.stdout


def test_what_is_wrong_is_one_line_and_nothing_is_written(fetch: Cli, server: Server, tmp_path: Path) -> None:
    for arguments, words in [
        (("cifar10", "--address", "mirror.org"), "'mirror.org' has to be http://HOST/"),
        (("--to", "here"), "--to and --address need the NAME"),
        (("cifar10",), "http://127.0.0.1:1/cifar-10-python.tar.gz cannot be reached (Connection refused)"),
        (("cifar10", "--address", f"{server.address}/x"), "mirror/x/cifar-10-python.tar.gz answers 404 Not Found"),
    ]:
        result = fetch(*arguments)
        assert result.returncode == 2, arguments
        assert words in result.stderr
        assert result.stderr.count("\n") == 1
        assert result.stderr.startswith("numpy-vit: ")
        assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", [("data",), ("data", "fetch")])
def test_help_has_an_example(cli: Cli, command: tuple[str, ...]) -> None:
    result = cli(*command, "--help")
    assert result.returncode == 0
    assert "\n  numpy-vit data fetch cifar10" in result.stdout.partition("examples:")[2]
