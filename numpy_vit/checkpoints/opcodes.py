"""The opcodes of a pickle, as what they do to the machine in `pickles`.

Protocols 2 to 5 without the text forms of protocol 0, which torch does not write, extension codes
(names that lie outside the file) and out-of-band buffers.  Source: CPython, Lib/pickletools.py.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from numpy_vit.checkpoints.pickles import Machine, Record
from numpy_vit.checkpoints.sources import BrokenFileError

_MAX_LONG = 1024  # bytes of an integer


def load(machine: Machine) -> Any:
    """Read the next pickle.

    Raises
    ------
    BrokenFileError : its opcodes make no sense, or are too many.
    """
    machine.restart()
    while True:
        machine.work(1)
        code = machine.take(1)
        if code == b".":
            return machine.pop()
        operation = _OPERATIONS.get(code)
        if operation is None:
            raise BrokenFileError(f"its pickle has the opcode {code!r}, which no torch file has")
        operation(machine)


def _long(machine: Machine, width: int) -> None:
    count = machine.number(width)
    if count > _MAX_LONG:
        raise BrokenFileError(f"its pickle has an integer of {count} bytes")
    machine.push(int.from_bytes(machine.take(count), "little", signed=True))


def _frame(machine: Machine) -> None:
    machine.number(8)  # a hint for the reader's buffer; the opcodes follow as without it


def _protocol(machine: Machine) -> None:
    version = machine.number(1)
    if not 2 <= version <= 5:
        raise BrokenFileError(f"its pickle has protocol {version}; 2 to 5 are known")


def _tuple(machine: Machine, count: int) -> None:
    values = [machine.pop() for _ in range(count)]
    machine.push(tuple(reversed(values)))


def _append(machine: Machine, values: list[Any]) -> None:
    target = machine.top()
    if isinstance(target, Record):
        if not values:
            return
        target.items = target.items or []
        target.items.extend(values)
    elif isinstance(target, list):
        target.extend(values)
    else:
        raise BrokenFileError("its pickle appends to something that is no list")


def _set_items(machine: Machine, values: list[Any]) -> None:
    target = machine.top()
    if not isinstance(target, Record) or len(values) % 2:
        raise BrokenFileError("its pickle sets items of something that is no dict")
    if values:
        target.pairs = target.pairs or []
        target.pairs.extend(zip(values[::2], values[1::2], strict=True))


def _set_item(machine: Machine) -> None:
    value, key = machine.pop(), machine.pop()
    _set_items(machine, [key, value])


def _dict(machine: Machine) -> None:
    values = machine.since_mark()
    machine.push(Record("dict"))
    _set_items(machine, values)


def _build(machine: Machine) -> None:
    state, target = machine.pop(), machine.top()
    if isinstance(target, Record):
        target.state = state
    elif not getattr(target, "takes_state", False):
        raise BrokenFileError("its pickle gives a state to something that is no object")


def _reduce(machine: Machine) -> None:
    args, function = machine.pop(), machine.pop()
    machine.push(machine.call(function, args))


def _new_with_keywords(machine: Machine) -> None:
    keywords, args, function = machine.pop(), machine.pop(), machine.pop()
    if not isinstance(args, tuple):
        raise BrokenFileError("its pickle calls something with arguments that are no tuple")
    machine.work(len(args))
    machine.push(machine.call(function, (*args, keywords)))


def _object(machine: Machine) -> None:
    values = machine.since_mark()
    if not values:
        raise BrokenFileError("its pickle makes an object of nothing")
    machine.push(machine.call(values[0], tuple(values[1:])))


def _instance(machine: Machine) -> None:
    machine.name(machine.line(), machine.line())
    machine.push(machine.call(machine.pop(), tuple(machine.since_mark())))


def _stack_global(machine: Machine) -> None:
    name, module = machine.pop(), machine.pop()
    machine.name(module, name)


def _pop(machine: Machine) -> None:
    machine.pop()


_OPERATIONS: dict[bytes, Callable[[Machine], None]] = {
    b"\x80": _protocol,
    b"\x95": _frame,
    b"(": Machine.mark,
    b"0": _pop,
    b"1": lambda m: m.since_mark().clear(),
    b"2": lambda m: m.push(m.top()),
    b"N": lambda m: m.push(None),
    b"\x88": lambda m: m.push(True),
    b"\x89": lambda m: m.push(False),
    b"J": lambda m: m.push(struct.unpack("<i", m.take(4))[0]),
    b"K": lambda m: m.push(m.number(1)),
    b"M": lambda m: m.push(m.number(2)),
    b"\x8a": lambda m: _long(m, 1),
    b"\x8b": lambda m: _long(m, 4),
    b"G": lambda m: m.push(struct.unpack(">d", m.take(8))[0]),
    b"U": lambda m: m.push(m.take(m.number(1)).decode("latin1")),  # the str of Python 2: text or bytes
    b"T": lambda m: m.push(m.take(m.number(4)).decode("latin1")),
    b"X": lambda m: m.push(m.text(4)),
    b"\x8c": lambda m: m.push(m.text(1)),
    b"\x8d": lambda m: m.push(m.text(8)),
    b"C": lambda m: m.push(m.take(m.number(1))),
    b"B": lambda m: m.push(m.take(m.number(4))),
    b"\x8e": lambda m: m.push(m.take(m.number(8))),
    b"\x96": lambda m: m.push(m.take(m.number(8))),
    b"]": lambda m: m.push([]),
    b"}": lambda m: m.push(Record("dict")),
    b"\x8f": lambda m: m.push([]),  # a set
    b")": lambda m: m.push(()),
    b"\x85": lambda m: _tuple(m, 1),
    b"\x86": lambda m: _tuple(m, 2),
    b"\x87": lambda m: _tuple(m, 3),
    b"t": lambda m: m.push(tuple(m.since_mark())),
    b"l": lambda m: m.push(m.since_mark()),
    b"\x91": lambda m: m.push(m.since_mark()),  # a frozenset
    b"d": _dict,
    b"a": lambda m: _append(m, [m.pop()]),
    b"e": lambda m: _append(m, m.since_mark()),
    b"\x90": lambda m: _append(m, m.since_mark()),
    b"s": _set_item,
    b"u": lambda m: _set_items(m, m.since_mark()),
    b"h": lambda m: m.get(m.number(1)),
    b"j": lambda m: m.get(m.number(4)),
    b"q": lambda m: m.put(m.number(1)),
    b"r": lambda m: m.put(m.number(4)),
    b"\x94": lambda m: m.put(),
    b"c": lambda m: m.name(m.line(), m.line()),
    b"\x93": _stack_global,
    b"R": _reduce,
    b"\x81": _reduce,  # cls.__new__(cls, *args)
    b"\x92": _new_with_keywords,
    b"o": _object,
    b"i": _instance,
    b"b": _build,
    b"Q": lambda m: m.persist(m.pop()),
}
