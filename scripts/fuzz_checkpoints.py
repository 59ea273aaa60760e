"""Damage checkpoints of every format at random; the reader has to read them or to raise CheckpointError.

    python scripts/fuzz_checkpoints.py --count 20000 --seed 0

Needs no torch: the torch files are those of tests/checkpoints/golden.  Bytes are flipped, cut out, repeated or cut
off, numbers are made extreme, opcodes are inserted; in zip archives also within a member, checksums put right again
so that the damage gets past them.  Ends with status 1, and keeps the file, at the first other exception or
allocation above the limit.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import sys
import tempfile
import time
import tracemalloc
import zipfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from numpy_vit.checkpoints import read_tensors, safetensors
from numpy_vit.errors import CheckpointError

GOLDEN = Path(__file__).parent.parent / "tests" / "checkpoints" / "golden"
LIMIT = 64 << 20  # bytes that any of these files, some kB each, may allocate
EXTREMES = [0, 1, 127, 128, 255, *(2**bits - less for bits in (15, 16, 31, 32, 40, 62, 63, 64) for less in (0, 1))]
OPCODES = b"(.0123INJKMRTQXabcdegh}lo]qrstu)\x80\x81\x82\x85\x86\x87\x88\x8a\x8b\x8c\x8d\x8e\x8f"
OPCODES += bytes(range(0x90, 0x98))


@dataclass
class Figures:
    """What the run has seen."""

    outcomes: Counter[str] = field(default_factory=Counter)
    peak: tuple[int, str] = (0, "")
    slowest: tuple[float, str] = (0.0, "")


def seeds(folder: Path) -> dict[str, bytes]:
    """Return undamaged files of every format, by name."""
    rng = np.random.default_rng(0)
    arrays = {
        "a/b": rng.standard_normal((3, 4)),
        "c": np.asfortranarray(rng.integers(0, 9, (2, 3))),
        "d": np.array([True]),
    }
    made = {path.name: path.read_bytes() for path in sorted(GOLDEN.glob("*.pt"))}
    for name, save in (("stored.npz", np.savez), ("deflated.npz", np.savez_compressed)):
        file = io.BytesIO()
        save(file, **arrays)
        made[name] = file.getvalue()
    file = io.BytesIO()
    np.save(file, arrays["c"])
    made["array.npy"] = file.getvalue()
    safetensors.write(folder / "part", arrays, {"format": "np"})
    made["model.safetensors"] = (folder / "part").read_bytes()
    made["index.json"] = json.dumps({"metadata": {}, "weight_map": dict.fromkeys(arrays, "part")}).encode()
    return made


def damage(data: bytes, rng: random.Random) -> bytes:
    """Return the bytes after one to four changes."""
    result = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at = rng.randrange(len(result) + 1)
        kind = rng.randrange(7)
        if kind == 0 and at < len(result):
            result[at] ^= 1 << rng.randrange(8)
        elif kind == 1 and at < len(result):
            result[at] = rng.randrange(256)
        elif kind == 2:
            del result[at : len(result) if rng.random() < 0.3 else at + rng.randrange(1, 40)]
        elif kind == 3:
            result[at:at] = result[at : at + rng.randrange(1, 200)] * rng.choice((1, 1, 2, 20))
        elif kind == 4:
            width = rng.choice((1, 2, 4, 8))
            result[at : at + width] = (rng.choice(EXTREMES) % 256**width).to_bytes(width, rng.choice(("little", "big")))
        elif kind == 5:
            result[at:at] = bytes(rng.choices(OPCODES, k=rng.randrange(1, 5)))
        else:
            digits = [i for i, byte in enumerate(result) if 48 <= byte < 58]
            for i in rng.sample(digits, min(len(digits), 2)):
                result[i] = rng.choice(b"0123456789-")
        if not result:
            break
    return bytes(result)


def mutate(data: bytes, rng: random.Random) -> bytes:
    """Damage a file, or one member of a zip archive."""
    # Without checksums, damage gets past them anyway (and Python's zipfile cannot read the file).
    if data[:2] != b"PK" or b"no_crc/data.pkl" in data or rng.random() < 0.3:
        return damage(data, rng)
    archive = zipfile.ZipFile(io.BytesIO(data))
    infos = archive.infolist()
    pickles = [info for info in infos if info.filename.endswith(("data.pkl", ".npy"))]
    chosen = rng.choice(pickles if rng.random() < 0.8 else infos)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as copy:
        for info in infos:
            content = archive.read(info)
            copy.writestr(info.filename, damage(content, rng) if info is chosen else content, info.compress_type)
    return file.getvalue()


def attempt(path: Path, label: str, mmap: bool, figures: Figures) -> str | None:
    """Read one file; return what is wrong with the reader, or None."""
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    start = time.perf_counter()
    fault = None
    try:
        tensors = read_tensors(path, mmap=mmap)
        figures.outcomes["read"] += 1
        for array in tensors.values():
            array.sum()  # every byte of a map can be looked at
    except CheckpointError as error:
        figures.outcomes["refused"] += 1
        if str(path) not in str(error) or "\n" in str(error):
            fault = f"an error that does not name the file in one line: {error}"
    except Exception as error:
        fault = f"{type(error).__name__}: {error}"
    seconds = time.perf_counter() - start
    peak = tracemalloc.get_traced_memory()[1] - before
    figures.peak = max(figures.peak, (peak, label))
    figures.slowest = max(figures.slowest, (seconds, label))
    return fault or (f"{peak} bytes were allocated" if peak > LIMIT else None)


def run(count: int, seed: int, folder: Path) -> tuple[Figures, str | None]:
    """Try `count` damaged files in `folder`; return the figures, and the first fault of the reader."""
    figures = Figures()
    files = seeds(folder)
    tracemalloc.start()
    try:
        with np.errstate(all="ignore"):
            for index in range(count):
                rng = random.Random(f"{seed} {index}")
                name = list(files)[index % len(files)]
                path = folder / name
                path.write_bytes(mutate(files[name], rng))
                fault = attempt(path, f"{name} (number {index})", rng.random() < 0.3, figures)
                if fault:
                    return figures, f"number {index}, {path}: {fault}"
    finally:
        tracemalloc.stop()
    return figures, None


def main() -> int:
    parser = argparse.ArgumentParser(description="damage checkpoints at random and read them")
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    start = time.perf_counter()
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    figures, fault = run(arguments.count, arguments.seed, folder)
    outcomes = ", ".join(f"{number} {outcome}" for outcome, number in sorted(figures.outcomes.items()))
    print(f"{arguments.count} files, seed {arguments.seed}, {time.perf_counter() - start:.0f} s: {outcomes}")
    print(f"largest allocation {figures.peak[0] / 2**20:.1f} MB: {figures.peak[1]}")
    print(f"slowest {1000 * figures.slowest[0]:.0f} ms: {figures.slowest[1]}")
    if fault:
        print(f"FAULT: {fault}", file=sys.stderr)
        return 1
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    return 0


if __name__ == "__main__":
    sys.exit(main())
