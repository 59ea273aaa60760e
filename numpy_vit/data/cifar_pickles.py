"""The pickled dicts of CIFAR's Python distribution, read without unpickling anything.

`pickletools` of the standard library tells the opcodes apart, and a machine follows the few that such a dict is made
of.  A name in the file never becomes more than a text, and the arrays remain records of what the file says: nothing
can run.  Python's own Unpickler would not do, even with a `find_class` that knows a closed list: it makes its memo as
long as the greatest index (ten bytes can ask for gigabytes), and it hashes keys (a deep tuple overflows the C stack).

What bounds time and memory: each opcode makes at most one small object or a text of the file's, opcodes are counted,
and keys are short texts.

Source: CPython, Lib/pickletools.py, for the meaning of opcodes; ndarray.__reduce__ and __reduce_ex__ of NumPy.
"""

from __future__ import annotations

import pickletools
from dataclasses import dataclass
from typing import Any

import numpy as np

from numpy_vit.errors import DataError
from numpy_vit.tree import Array

MAX_OPCODES = 1_000_000  # CIFAR-100's 50,000 rows take 500,000 in the longest spelling that Python 3 writes
LONGEST_TEXT = 256  # of a key or a class's name

_RECONSTRUCT, _FROMBUFFER, _NDARRAY, _DTYPE, _ENCODE = "_reconstruct", "_frombuffer", "ndarray", "dtype", "encode"
_GLOBALS = {
    "numpy.core.multiarray _reconstruct": _RECONSTRUCT,
    "numpy._core.multiarray _reconstruct": _RECONSTRUCT,  # since NumPy 2
    "numpy.core.numeric _frombuffer": _FROMBUFFER,  # protocol 5
    "numpy._core.numeric _frombuffer": _FROMBUFFER,
    "numpy ndarray": _NDARRAY,
    "numpy dtype": _DTYPE,
    "_codecs encode": _ENCODE,  # bytes in protocol 2, as Python 3 spells them
}
_VALUES = {
    "BININT", "BININT1", "BININT2", "LONG1", "SHORT_BINSTRING", "BINSTRING", "SHORT_BINUNICODE", "BINUNICODE",
    "BINUNICODE8", "SHORT_BINBYTES", "BINBYTES", "BINBYTES8", "BYTEARRAY8",
}  # fmt: skip
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


class _FaultError(Exception):
    """What is wrong with the pickle; the text goes on after the file's name."""


@dataclass(frozen=True, slots=True)
class _Global:
    name: str


@dataclass(slots=True, eq=False, repr=False)
class _Record:
    """An object that the file describes: what is called with what, and the state that it gets."""

    name: str
    args: tuple[Any, ...]
    state: Any = None


def read_pickle(content: bytes, where: str, remedy: str) -> dict[str, Any]:
    """Return the dict of a pickle; its keys are texts, its values lists, numbers, texts, bytes or inert records.

    Parameters
    ----------
    where, remedy : what messages call the file, and what to do if it is wrong.

    Raises
    ------
    DataError : it is no such pickle, or it wants something that no CIFAR file needs.
    """
    machine = _Machine()
    try:
        for count, (opcode, argument, _) in enumerate(pickletools.genops(content)):
            if count > MAX_OPCODES:
                raise _FaultError(f"has more than {MAX_OPCODES} opcodes")
            machine.step(opcode.name, argument)
        found = machine.pop()
    except _FaultError as fault:
        raise DataError(f"{where} {fault}; {remedy}") from fault
    except (ValueError, Warning) as error:  # a DeprecationWarning about escapes, where warnings are errors
        raise DataError(f"{where} is no pickle, or a broken one; {remedy}") from error
    if not isinstance(found, dict):
        raise DataError(f"{where} holds no dict; {remedy}")
    return found


def rows_of(value: Any, width: int, where: str, remedy: str) -> Array:
    """Return the (n, width) uint8 array that a value of the dict describes.

    Raises
    ------
    DataError : the value describes no array, or one of another shape, type or order, or its bytes do not fit.
    """
    match value:
        case _Record(name="_reconstruct", state=(int(), shape, _Record(name="dtype") as dtype, fortran, data)):
            ordered = fortran is False or fortran == 0
        case _Record(name="_frombuffer", args=(data, _Record(name="dtype") as dtype, shape, order)):
            ordered = order in ("C", b"C")
        case _:
            raise DataError(f"{where} has no array under 'data'; {remedy}")
    kind = _short_text(dtype.args[0]) if dtype.args else None
    if kind not in ("u1", "|u1", "uint8"):
        raise DataError(f"{where} has an array of type {kind!r} under 'data', not of bytes ('u1'); {remedy}")
    if not ordered:
        raise DataError(f"{where} has an array in Fortran's order under 'data', not in C's; {remedy}")
    if not isinstance(shape, tuple) or len(shape) != 2 or any(type(size) is not int for size in shape):
        raise DataError(f"{where} has an array under 'data' that has not two dimensions; {remedy}")
    if not 0 < shape[0] < 2**31 or shape[1] != width:
        raise DataError(f"{where} has an array under 'data' that is not (n, {width}) with n > 0; {remedy}")
    pixels = _bytes(data)
    if pixels is None or len(pixels) != shape[0] * width:
        found = "no bytes" if pixels is None else f"{len(pixels)} bytes"
        raise DataError(f"{where} has {found} for its array {shape}, which takes {shape[0] * width}; {remedy}")
    return np.frombuffer(pixels, np.uint8).reshape(shape)


def texts_of(value: Any, where: str, remedy: str) -> list[str]:
    """Return the short texts that a value of the dict is a list of.

    Raises
    ------
    DataError : it is something else.
    """
    texts = [_short_text(item) for item in value] if isinstance(value, list) and len(value) <= LONGEST_TEXT else [None]
    if any(text is None for text in texts):
        raise DataError(f"{where} has no list of class names; {remedy}")
    return [text for text in texts if text is not None]


class _Machine:
    """The stack, the marks in it and the memo."""

    def __init__(self) -> None:
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}

    def step(self, name: str, argument: Any) -> None:
        """Do what an opcode says."""
        if name in _VALUES:
            self._stack.append(argument)
        elif name in _CONSTANTS:
            self._stack.append(_CONSTANTS[name])
        elif name in _TUPLES:
            self._stack.append(tuple(self._take(_TUPLES[name])))
        elif name not in ("PROTO", "FRAME", "STOP"):
            action = _ACTIONS.get(name)
            if action is None:
                raise _FaultError(f"has the opcode {name}, which no CIFAR file needs")
            action(self, argument)

    def pop(self) -> Any:
        """Take the last value."""
        return self._take(1)[0]

    def _take(self, count: int) -> list[Any]:
        floor = self._marks[-1] if self._marks else 0
        if len(self._stack) - count < floor:
            raise _FaultError("takes more off its stack than there is")
        taken = self._stack[len(self._stack) - count :]
        del self._stack[len(self._stack) - count :]
        return taken

    def _take_to_mark(self) -> list[Any]:
        if not self._marks:
            raise _FaultError("lacks a mark")
        taken = self._stack[self._marks[-1] :]
        del self._stack[self._marks.pop() :]
        return taken

    def _mark(self, _: Any) -> None:
        self._marks.append(len(self._stack))

    def _put(self, index: int | None) -> None:
        value = self.pop()
        self._stack.append(value)
        self._memo[len(self._memo) if index is None else index] = value

    def _get(self, index: int) -> None:
        if index not in self._memo:
            raise _FaultError(f"refers to object {index}, which it has not made")
        self._stack.append(self._memo[index])

    def _tuple(self, _: Any) -> None:
        self._stack.append(tuple(self._take_to_mark()))

    def _append(self, values: list[Any]) -> None:
        target = self.pop()
        if not isinstance(target, list):
            raise _FaultError("appends to something that is no list")
        target.extend(values)
        self._stack.append(target)

    def _set(self, values: list[Any]) -> None:
        target = self.pop()
        if not isinstance(target, dict) or len(values) % 2:
            raise _FaultError("sets items of something that is no dict")
        for key, value in zip(values[::2], values[1::2], strict=True):
            text = _short_text(key)
            if text is None:
                raise _FaultError("has a key that is no short text")
            target[text] = value
        self._stack.append(target)

    def _name(self, name: Any) -> None:
        if name not in _GLOBALS:
            raise _FaultError(
                f"wants {name[:LONGEST_TEXT].replace(' ', '.')!r}, which no CIFAR file needs: nothing was run"
            )
        self._stack.append(_Global(_GLOBALS[name]))

    def _stack_name(self, _: Any) -> None:
        module, name = map(_short_text, self._take(2))
        if module is None or name is None:
            raise _FaultError("names a global with something else than two short texts")
        self._name(f"{module} {name}")

    def _call(self, _: Any) -> None:
        function, args = self._take(2)
        if not isinstance(function, _Global) or not isinstance(args, tuple):
            raise _FaultError("calls something that is no function")
        if function.name != _ENCODE:
            self._stack.append(_Record(function.name, args))
        elif len(args) == 2 and isinstance(args[0], str) and _short_text(args[1]) in ("latin1", "latin-1"):
            self._stack.append(args[0])  # its characters are the bytes; `_bytes` makes them when they are wanted
        else:
            raise _FaultError("encodes something that is no text in latin1")

    def _build(self, _: Any) -> None:
        record, state = self._take(2)
        if not isinstance(record, _Record):
            raise _FaultError("gives a state to something that is no object")
        record.state = state
        self._stack.append(record)


_ACTIONS = {
    "MARK": _Machine._mark,
    "EMPTY_LIST": lambda machine, _: machine._stack.append([]),
    "EMPTY_DICT": lambda machine, _: machine._stack.append({}),
    "TUPLE": _Machine._tuple,
    "APPEND": lambda machine, _: machine._append(machine._take(1)),
    "APPENDS": lambda machine, _: machine._append(machine._take_to_mark()),
    "SETITEM": lambda machine, _: machine._set(machine._take(2)),
    "SETITEMS": lambda machine, _: machine._set(machine._take_to_mark()),
    "BINPUT": _Machine._put,
    "LONG_BINPUT": _Machine._put,
    "MEMOIZE": _Machine._put,
    "BINGET": _Machine._get,
    "LONG_BINGET": _Machine._get,
    "GLOBAL": _Machine._name,
    "STACK_GLOBAL": _Machine._stack_name,
    "REDUCE": _Machine._call,
    "BUILD": _Machine._build,
}


def _short_text(value: Any) -> str | None:
    """Return the text that Python 2 or 3 wrote, where the value is one and short."""
    if not isinstance(value, (str, bytes)) or len(value) > LONGEST_TEXT:
        return None
    return value if isinstance(value, str) else value.decode("latin1")


def _bytes(value: Any) -> bytes | None:
    """Return the bytes of a value: those of Python 2's str came as the characters of the same numbers."""
    if isinstance(value, str):
        try:
            return value.encode("latin1")
        except UnicodeEncodeError:
            return None
    return bytes(value) if isinstance(value, (bytes, bytearray)) else None
