"""Downloads that end with the published file or with nothing under its name.

The bytes go to NAME.part beside the target.  A connection that is cut leaves them there, and the next attempt asks
for the rest; when all are there and the checksum is right, the file gets its name.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import re
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy_vit import __version__
from numpy_vit.data.registry import PublishedFile, release
from numpy_vit.errors import DataError

TIMEOUT = 30.0  # seconds without a byte
RESUMES = 5  # attempts to go on after a cut, at each address
CHUNK = 1 << 18
_HEADERS = {"User-Agent": f"numpy_vit/{__version__}", "Accept-Encoding": "identity"}
_NETWORK = (OSError, http.client.HTTPException, ValueError)  # ValueError: a host's name that is none
_NO_RANGE = 416

OnProgress = Callable[[str, int, int], None]
Say = Callable[[str], None]


def fetch(
    name: str,
    folder: str | os.PathLike[str],
    on_progress: OnProgress = lambda *_: None,
    say: Say = lambda _: None,
    address: str | None = None,
) -> list[Path]:
    """Download the files of a data set that are not there yet.

    Parameters
    ----------
    name : a key of registry.RELEASES.
    folder : made where it is missing.  A file there with another checksum is replaced once the right one is complete.
    on_progress : called with a file's name, how many of its bytes are there, and how many it has.
    say : called with a line for people when a file is done and when something goes wrong on the way.
    address : of a mirror, http or https, that has the files directly below it; default: the publishers' addresses.

    Returns
    -------
    paths of all files, with those that were there already.

    Raises
    ------
    DataError : no such data set, or no address gives a file; a download that was cut goes on with the next call.
    OSError : the folder cannot be written to.
    """
    found = release(name)
    addresses = found.addresses if address is None else (_directory(address),)
    return [_Download(file, Path(folder), on_progress, say).run(addresses) for file in found.files]


class _AddressError(Exception):
    """An address does not give the file; the text says why."""


@dataclass(frozen=True)
class _Download:
    """One file on its way into `folder`."""

    file: PublishedFile
    folder: Path
    on_progress: OnProgress
    say: Say

    @property
    def part(self) -> Path:
        return self.folder / f"{self.file.name}.part"

    @property
    def there(self) -> int:
        """How many bytes the part has."""
        return self.part.stat().st_size if self.part.exists() else 0

    def run(self, addresses: tuple[str, ...]) -> Path:
        """Return the file's path once it is there, from the first address that gives it."""
        file, target, reasons = self.file, self.folder / self.file.name, []
        if target.is_file():
            if _md5(target) == file.md5:
                self.say(f"{file.name}: is there already, checksum right")
                return target
            self.say(f"{file.name}: the one that is there has another checksum than the published one; replacing it")
        for address in addresses:
            fault = self._complete(address + file.name)
            if fault is None:
                self.part.replace(target)
                self.say(f"{file.name}: {file.size:,} bytes, checksum right")
                return target
            reasons.append(fault)
            if address != addresses[-1]:
                self.say(f"{file.name}: {fault}; trying the next address")
        again = f"run it again, it goes on from {self.part}" if self.there else "try again later"
        raise DataError(f"{file.name} was not fetched: {'; '.join(reasons)}; {again}, or give a mirror with --address")

    def _complete(self, url: str) -> str | None:
        """Fill the part and check it; return what is wrong with the address, if anything is."""
        try:
            self._fill(url)
        except _AddressError as error:
            return str(error)
        if _md5(self.part) == self.file.md5:
            return None
        self.part.unlink()
        return f"what came from {url} has not the checksum {self.file.md5} and was deleted"

    def _fill(self, url: str) -> None:
        if self.there > self.file.size:
            self.part.unlink()  # of something else
        for _ in range(1 + RESUMES):
            if self.there < self.file.size:
                with self._ask(url) as response:
                    self._receive(response, url)
            if self.there == self.file.size:
                return
            self.say(f"{self.file.name}: cut off at {self.there:,} of {self.file.size:,} bytes")
        raise _AddressError(f"{url} broke off {1 + RESUMES} times")

    def _ask(self, url: str) -> Any:
        """Open the address at the part's end, or at the start where the server knows no such place."""
        start = self.there
        asked = {"Range": f"bytes={start}-"} if start else {}
        try:
            response = urllib.request.urlopen(urllib.request.Request(url, headers=_HEADERS | asked), timeout=TIMEOUT)
        except urllib.error.HTTPError as error:
            error.close()
            if start and error.code == _NO_RANGE:
                self.part.unlink()
                return self._ask(url)
            phrase = http.client.responses.get(error.code, "")
            raise _AddressError(f"{url} answers {error.code} {phrase}".rstrip()) from error
        except _NETWORK as error:
            raise _AddressError(f"{url} cannot be reached ({_reason(error)})") from error
        if response.status == http.client.PARTIAL_CONTENT and _range_start(response) != start:
            response.close()
            self.part.unlink(missing_ok=True)
            if not start:
                raise _AddressError(f"{url} sends a part of the file that nobody asked for")
            return self._ask(url)
        return response

    def _receive(self, response: Any, url: str) -> None:
        """Append what comes to the part, which begins anew where the server sends everything."""
        resumed = response.status == http.client.PARTIAL_CONTENT
        done, size = self.there if resumed else 0, self.file.size
        announced = response.headers.get("Content-Length", "")
        if announced.isdigit() and done + int(announced) != size:
            raise _AddressError(f"{url} announces {done + int(announced):,} bytes, the published file has {size:,}")
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.part.open("ab" if resumed else "wb") as part:
            while piece := _read(response):
                done += len(piece)
                if done > size:
                    break
                part.write(piece)
                self.on_progress(self.file.name, done, size)
            part.flush()
            os.fsync(part.fileno())
        if done > size:
            self.part.unlink()
            raise _AddressError(f"{url} sends more than the {size:,} bytes of the published file")


def _read(response: Any) -> bytes:
    """Return what has come; nothing at the end, and nothing where the connection is cut."""
    try:
        return bytes(response.read1(CHUNK))
    except _NETWORK:
        return b""


def _range_start(response: Any) -> int | None:
    match = re.match(r"bytes (\d{1,18})-", response.headers.get("Content-Range", ""))
    return int(match[1]) if match else None


def _directory(address: str) -> str:
    if re.match(r"https?://[^/\s]\S*$", address) is None:
        raise DataError(f"the address {address!r} has to be http://HOST/... or https://HOST/...")
    return address if address.endswith("/") else address + "/"


def _reason(error: BaseException) -> str:
    """Return an error's text in one line that a terminal can show, since a server may have sent it."""
    cause = getattr(error, "reason", error)  # a URLError's
    text = " ".join(str(getattr(cause, "strerror", None) or cause or type(cause).__name__).split())
    return "".join(character if character.isprintable() else "?" for character in text)


def _md5(path: Path) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()
