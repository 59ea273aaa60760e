"""Pickles read without Python's pickle: a machine for their opcodes that makes inert records only.

A name in a pickle never becomes anything but a `Name`, a text; calling it makes a `Record` of the arguments.  So
there is nothing that could run.  What bounds memory and time: each opcode makes at most one small object; texts
are no longer than the file; dicts and sets are kept as lists, as hashing a key can take exponential time; nothing
is compared, copied or printed; and there are limits on bytes and on opcodes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, BinaryIO

from numpy_vit.checkpoints.sources import BrokenFileError

MAX_BYTES = 64 << 20
MAX_OPCODES = 4_000_000
_MAX_NAME = 4096  # bytes of a module's or a class's name


@dataclass(frozen=True, slots=True)
class Name:
    """A global that the pickle names, "torch._utils._rebuild_tensor_v2"."""

    text: str


@dataclass(slots=True, eq=False, repr=False)
class Record:
    """An object of the pickle: what was called, with what, and what was put into it afterwards."""

    name: str
    args: tuple[Any, ...] = ()
    pairs: list[tuple[Any, Any]] | tuple[()] = ()  # of a dict, in the file's order, double keys and all
    items: list[Any] | tuple[()] = ()  # of an object that is a list or a set
    state: Any = None


class Machine:
    """One pickle after another from a stream.

    Parameters
    ----------
    stream : read exactly to the end of each pickle, never further.
    size : the bytes from the stream's position to its end.
    call : makes the value of a call from the name and the arguments.
    persistent : makes the value of a persistent id.
    """

    def __init__(
        self,
        stream: BinaryIO,
        size: int,
        call: Callable[[str, tuple[Any, ...]], Any],
        persistent: Callable[[Any], Any],
    ) -> None:
        self._stream, self._left = stream, size
        self._bytes, self._opcodes = MAX_BYTES, MAX_OPCODES
        self._call, self._persistent = call, persistent
        self._stack: list[Any] = []
        self._outer: list[list[Any]] = []  # the stacks below each mark
        self._memo: dict[int, Any] = {}

    def restart(self) -> None:
        """Forget one pickle's stack and memo before the next; the limits go on."""
        self._stack, self._outer, self._memo = [], [], {}

    def take(self, count: int) -> bytes:
        """Return the next bytes of the stream."""
        if count > self._left:
            raise BrokenFileError(f"its pickle is cut off: {count} bytes are missing after the last {self._left}")
        if count > self._bytes:
            raise BrokenFileError(f"its pickle has more than {MAX_BYTES} bytes")
        self._left -= count
        self._bytes -= count
        data = self._stream.read(count)
        if len(data) != count:
            raise BrokenFileError("its pickle is cut off")
        return data

    def number(self, count: int) -> int:
        """Return an unsigned number of `count` bytes."""
        return int.from_bytes(self.take(count), "little")

    def line(self) -> str:
        """Return a text that ends with a newline."""
        data = self._stream.readline(min(self._left, _MAX_NAME))
        self._left -= len(data)
        self._bytes -= len(data)
        if data[-1:] != b"\n":
            raise BrokenFileError("its pickle has a name without an end")
        return _text(data[:-1])

    def text(self, width: int) -> str:
        """Return a text after its length in `width` bytes."""
        return _text(self.take(self.number(width)))

    def push(self, value: Any) -> None:
        """Put a value on the stack."""
        self._stack.append(value)

    def pop(self) -> Any:
        """Take the last value off the stack."""
        if not self._stack:
            raise BrokenFileError("its pickle takes more off the stack than there is")
        return self._stack.pop()

    def top(self) -> Any:
        """Return the last value of the stack."""
        if not self._stack:
            raise BrokenFileError("its pickle takes more off the stack than there is")
        return self._stack[-1]

    def mark(self) -> None:
        """Begin a stack on top of the present one."""
        self._outer.append(self._stack)
        self._stack = []

    def since_mark(self) -> list[Any]:
        """Return what was pushed since the last mark, and go back to the stack below it."""
        if not self._outer:
            raise BrokenFileError("its pickle has no mark where one is needed")
        values, self._stack = self._stack, self._outer.pop()
        return values

    def get(self, index: int) -> None:
        """Push an object that was remembered."""
        if index not in self._memo:
            raise BrokenFileError(f"its pickle refers to object {index}, which it has not made")
        self.push(self._memo[index])

    def put(self, index: int | None = None) -> None:
        """Remember the last value, under the next number if none is given."""
        self._memo[len(self._memo) if index is None else index] = self.top()

    def work(self, count: int) -> None:
        """Count an opcode, or the copy of so many references, which takes as much."""
        self._opcodes -= count
        if self._opcodes < 0:
            raise BrokenFileError(f"its pickle has more than {MAX_OPCODES} opcodes")

    def call(self, function: Any, args: Any) -> Any:
        """Return the record or the value that a call stands for."""
        if not isinstance(args, tuple):
            raise BrokenFileError("its pickle calls something with arguments that are no tuple")
        if not isinstance(function, Name):  # the result of a call, say
            self.work(len(args))
            return Record("", (function, *args))
        if args and isinstance(args[-1], (list, tuple)):
            self.work(len(args[-1]))  # the constructors of containers take one container
        return self._call(function.text, args)

    def name(self, module: Any, name: Any) -> None:
        """Push a global, by its name only."""
        if not isinstance(module, str) or not isinstance(name, str) or len(module) + len(name) > 2 * _MAX_NAME:
            raise BrokenFileError("its pickle names a global with something else than two short texts")
        self.push(Name(f"{module}.{name}"))

    def persist(self, identity: Any) -> None:
        """Push what a persistent id means."""
        self.push(self._persistent(identity))


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")  # half a surrogate pair could not be printed
