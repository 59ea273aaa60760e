"""Downloads from a server on this machine that does whatever servers and networks do."""

from __future__ import annotations

import hashlib
import os
import re
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from numpy_vit.data import fetch, registry
from numpy_vit.errors import DataError

CONTENT = {"a.gz": os.urandom(300_000), "b.gz": b"labels"}


def published(name):
    data = CONTENT[name]
    return registry.PublishedFile(name, len(data), hashlib.md5(data, usedforsecurity=False).hexdigest())


class Server(ThreadingHTTPServer):
    """Serves `files`; `asked` lists each request's path and range."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = {f"/{name}": data for name, data in CONTENT.items()}
        self.asked = []
        self.knows_ranges = True
        self.cuts = []  # after how many bytes each of the next answers ends
        self.announces = True
        self.lies = {}  # headers of partial answers
        self.address = f"http://127.0.0.1:{self.server_port}/"

    def handle_error(self, request, client_address):
        pass  # the client has gone


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        server = self.server
        server.asked.append((self.path, self.headers["Range"]))
        data = server.files.get(self.path)
        if data is None:
            self.send_error(404)
            return
        match = re.fullmatch(r"bytes=(\d+)-", self.headers["Range"] or "")
        start = int(match[1]) if match and server.knows_ranges else 0
        if start and start >= len(data):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", server.lies.get(start, f"bytes {start}-{len(data) - 1}/{len(data)}"))
        if server.announces:
            self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        end = start + server.cuts.pop(0) if server.cuts else len(data)
        self.wfile.write(data[start:end])

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def release(monkeypatch, server):
    found = registry.Release("two files", tuple(map(published, CONTENT)), (server.address,))
    monkeypatch.setitem(registry.RELEASES, "two", found)
    return found


def check(folder):
    """Nothing but the right files is there."""
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == CONTENT


def message(folder, **options):
    with pytest.raises(DataError) as caught:
        fetch.fetch("two", folder, **options)
    text = str(caught.value)
    assert text.isprintable()
    return text


def test_a_whole_download(tmp_path, server):
    folder, seen, said = tmp_path / "new" / "folder", [], []
    paths = fetch.fetch("two", folder, lambda *step: seen.append(step), said.append)
    assert paths == [folder / "a.gz", folder / "b.gz"]
    check(folder)
    assert [done for name, done, _ in seen if name == "a.gz"] == sorted(
        {done for name, done, _ in seen if name == "a.gz"}
    )
    assert seen[-1] == ("b.gz", 6, 6)
    assert ("a.gz", 300_000, 300_000) in seen
    assert said == ["a.gz: 300,000 bytes, checksum right", "b.gz: 6 bytes, checksum right"]
    assert server.asked == [("/a.gz", None), ("/b.gz", None)]


def test_what_is_there_is_not_fetched_again(tmp_path, server):
    fetch.fetch("two", tmp_path)
    server.asked.clear()
    said = []
    fetch.fetch("two", tmp_path, say=said.append)
    assert server.asked == []
    assert said == ["a.gz: is there already, checksum right", "b.gz: is there already, checksum right"]


def test_another_file_of_the_name_is_replaced_when_the_right_one_is_complete(tmp_path, server):
    (tmp_path / "a.gz").write_bytes(b"another")
    server.files["/a.gz"] = bytes(300_000)
    message(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a.gz": b"another"}
    server.files["/a.gz"] = CONTENT["a.gz"]
    said = []
    fetch.fetch("two", tmp_path, say=said.append)
    assert "another checksum" in said[0]
    check(tmp_path)


def test_a_part_is_completed(tmp_path, server):
    (tmp_path / "a.gz.part").write_bytes(CONTENT["a.gz"][:100_001])
    seen = []
    fetch.fetch("two", tmp_path, lambda *step: seen.append(step))
    assert server.asked[0] == ("/a.gz", "bytes=100001-")
    assert seen[0][1] > 100_001
    check(tmp_path)


def test_a_part_that_is_complete_needs_no_server(tmp_path, server):
    (tmp_path / "a.gz.part").write_bytes(CONTENT["a.gz"])
    fetch.fetch("two", tmp_path)
    assert server.asked == [("/b.gz", None)]
    check(tmp_path)


def test_a_part_that_is_too_long_begins_anew(tmp_path, server):
    (tmp_path / "a.gz.part").write_bytes(CONTENT["a.gz"] + b"x")
    fetch.fetch("two", tmp_path)
    assert server.asked[0] == ("/a.gz", None)
    check(tmp_path)


def test_a_part_of_something_else_is_deleted_and_the_next_call_begins_anew(tmp_path):
    (tmp_path / "a.gz.part").write_bytes(b"x" * 100)
    text = message(tmp_path)
    assert "has not the checksum" in text
    assert "was deleted" in text
    assert not list(tmp_path.iterdir())
    fetch.fetch("two", tmp_path)
    check(tmp_path)


def test_a_server_without_ranges_sends_all(tmp_path, server):
    server.knows_ranges = False
    (tmp_path / "a.gz.part").write_bytes(b"x" * 100)
    fetch.fetch("two", tmp_path)
    assert server.asked == [("/a.gz", "bytes=100-"), ("/b.gz", None)]
    check(tmp_path)


def test_a_server_that_has_no_such_place_begins_anew(tmp_path, server, release, monkeypatch):
    (tmp_path / "a.gz.part").write_bytes(CONTENT["a.gz"][:200_000])
    server.files["/a.gz"] = CONTENT["a.gz"][:1000]
    assert "announces 1,000 bytes, the published file has 300,000" in message(tmp_path)
    assert server.asked == [("/a.gz", "bytes=200000-"), ("/a.gz", None)]


@pytest.mark.parametrize("lie", ["bytes 0-99/300000", "bytes */300000", "nonsense", ""])
def test_a_part_from_another_place_is_not_appended(tmp_path, server, lie):
    (tmp_path / "a.gz.part").write_bytes(CONTENT["a.gz"][:100])
    server.lies[100] = lie
    fetch.fetch("two", tmp_path)
    assert server.asked[:2] == [("/a.gz", "bytes=100-"), ("/a.gz", None)]
    check(tmp_path)


@pytest.mark.parametrize("announces", [True, False])
def test_a_connection_that_is_cut_goes_on(tmp_path, server, announces):
    server.cuts, server.announces = [150_000, 100_000], announces
    said = []
    fetch.fetch("two", tmp_path, say=said.append)
    ranges = [asked for path, asked in server.asked if path == "/a.gz"]
    assert ranges == [None, "bytes=150000-", "bytes=250000-"]
    assert said[:2] == ["a.gz: cut off at 150,000 of 300,000 bytes", "a.gz: cut off at 250,000 of 300,000 bytes"]
    check(tmp_path)


def test_after_five_attempts_to_go_on_the_part_is_kept_for_the_next_call(tmp_path, server):
    server.cuts = [1000] * 6
    text = message(tmp_path)
    assert f"{server.address}a.gz broke off 6 times; run it again, it goes on from {tmp_path / 'a.gz.part'}" in text
    assert len(server.asked) == 6
    assert (tmp_path / "a.gz.part").read_bytes() == CONTENT["a.gz"][:6000]
    assert not (tmp_path / "a.gz").exists()
    fetch.fetch("two", tmp_path)
    assert server.asked[6] == ("/a.gz", "bytes=6000-")
    check(tmp_path)


def test_cuts_of_a_server_without_ranges(tmp_path, server):
    server.knows_ranges, server.cuts = False, [150_000, 10]
    fetch.fetch("two", tmp_path)
    check(tmp_path)


def test_a_wrong_checksum_leaves_nothing(tmp_path, server):
    server.files["/a.gz"] = bytes(300_000)
    text = message(tmp_path)
    assert f"what came from {server.address}a.gz has not the checksum" in text
    assert "--address" in text
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("data", "words"), [(bytes(299_999), "299,999"), (bytes(300_001), "300,001"), (b"", "0")])
def test_another_length_is_seen_before_a_byte_is_written(tmp_path, server, data, words):
    server.files["/a.gz"] = data
    assert f"announces {words} bytes, the published file has 300,000" in message(tmp_path)
    assert not list(tmp_path.iterdir())


def test_more_than_the_file_is_not_kept(tmp_path, server):
    server.files["/a.gz"], server.announces = bytes(10_000_000), False
    assert "sends more than the 300,000 bytes" in message(tmp_path)
    assert not list(tmp_path.iterdir())


def test_no_file_no_server_and_no_network(tmp_path, server):
    del server.files["/a.gz"]
    assert f"{server.address}a.gz answers 404 Not Found; try again later" in message(tmp_path / "new")
    assert not list(tmp_path.iterdir())
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{unused.getsockname()[1]}/"
        assert f"{address}a.gz cannot be reached (Connection refused)" in message(tmp_path, address=address)
    assert "http://a..b/a.gz cannot be reached" in message(tmp_path, address="http://a..b")


def test_a_server_that_says_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(fetch, "TIMEOUT", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        assert "cannot be reached (timed out)" in message(tmp_path, address=address)


def test_a_server_that_does_not_speak_http(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer():
            client, _ = listening.accept()
            with client:
                client.recv(65536)
                client.sendall(b"\x1b[2Jhello\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        address = f"http://127.0.0.1:{listening.getsockname()[1]}/"
        assert "cannot be reached" in message(tmp_path, address=address)
        thread.join()


@pytest.mark.parametrize("fault", ["404", "checksum", "length", "cut"])
def test_the_next_mirror_is_tried(tmp_path, server, monkeypatch, release, fault):
    with Server() as first:
        thread = threading.Thread(target=first.serve_forever, args=(0.01,))
        thread.start()
        content = {"404": None, "checksum": bytes(300_000), "length": b"sorry"}.get(fault, CONTENT["a.gz"])
        first.files["/a.gz"] = content
        first.cuts = [1000] * 6 if fault == "cut" else []
        both = registry.Release("", release.files, (first.address, server.address))
        monkeypatch.setitem(registry.RELEASES, "two", both)
        said = []
        fetch.fetch("two", tmp_path, say=said.append)
        first.shutdown()
        thread.join()
    tried = [line for line in said if "trying the next address" in line]
    assert len(tried) == 1
    assert f"{first.address}a.gz" in tried[0]
    assert server.asked == [("/a.gz", "bytes=6000-" if fault == "cut" else None)]  # the second file came from the first
    check(tmp_path)


def test_all_mirrors_are_named(tmp_path, server, monkeypatch, release):
    both = registry.Release("", release.files, (f"{server.address}x/", f"{server.address}y/"))
    monkeypatch.setitem(registry.RELEASES, "two", both)
    assert "x/a.gz answers 404 Not Found; http://" in message(tmp_path)
    assert "y/a.gz answers 404 Not Found; try again later" in message(tmp_path)


def test_an_address_of_ones_own_with_or_without_its_slash(tmp_path, server, monkeypatch, release):
    monkeypatch.setitem(registry.RELEASES, "two", registry.Release("", release.files, ("http://127.0.0.1:1/",)))
    server.files = {f"/deep/er/{name}": data for name, data in CONTENT.items()}
    for number, address in enumerate((f"{server.address}deep/er", f"{server.address}deep/er/")):
        fetch.fetch("two", tmp_path / str(number), address=address)
        check(tmp_path / str(number))


@pytest.mark.parametrize(
    "address", ["", "mirror.org", "ftp://mirror.org/", "file:///etc/", "http://", "http:///x", "http://a b/"]
)
def test_addresses_that_are_none(tmp_path, address):
    assert f"the address {address!r} has to be http://HOST/... or https://HOST/..." in message(
        tmp_path, address=address
    )
    assert not list(tmp_path.iterdir())


def test_an_interruption_keeps_what_has_come(tmp_path, server):
    def stop(name, done, size):
        if done > 100_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch.fetch("two", tmp_path, stop)
    kept = (tmp_path / "a.gz.part").read_bytes()
    assert len(kept) > 100_000
    assert CONTENT["a.gz"].startswith(kept)
    server.asked.clear()
    fetch.fetch("two", tmp_path)
    assert server.asked[0] == (("/a.gz", f"bytes={len(kept)}-") if len(kept) < 300_000 else ("/b.gz", None))
    check(tmp_path)


def test_a_folder_that_cannot_be_written_is_not_taken_for_a_network(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OSError, match="file"):
        fetch.fetch("two", tmp_path / "file")


def test_names(tmp_path):
    with pytest.raises(
        DataError, match="no data set 'cifar' can be fetched; choose one of mnist, fashion-mnist, cifar10"
    ):
        fetch.fetch("cifar", tmp_path)


def test_where_data_live(monkeypatch, tmp_path):
    monkeypatch.setenv("NUMPY_VIT_DATA", str(tmp_path))
    assert registry.home("mnist") == tmp_path / "mnist"
    monkeypatch.setenv("NUMPY_VIT_DATA", "")
    monkeypatch.setenv("HOME", "/home/me")
    assert str(registry.home("cifar10")) == "/home/me/.cache/numpy_vit/cifar10"


@pytest.mark.framework
def test_the_table_is_torchvisions():
    datasets = pytest.importorskip("torchvision.datasets")
    for name, theirs in (("mnist", datasets.MNIST), ("fashion-mnist", datasets.FashionMNIST)):
        found = registry.RELEASES[name]
        assert sorted((file.name, file.md5) for file in found.files) == sorted(theirs.resources)
        assert set(found.addresses) <= set(theirs.mirrors)
    for name, theirs in (("cifar10", datasets.CIFAR10), ("cifar100", datasets.CIFAR100)):
        (file,), (address,) = registry.RELEASES[name].files, registry.RELEASES[name].addresses
        assert (file.name, file.md5, address + file.name) == (theirs.filename, theirs.tgz_md5, theirs.url)
