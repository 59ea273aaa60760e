"""Tables as plain ASCII text, for terminals: columns of words and numbers, and confusion tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

_GAP = 2  # blanks between columns
_SHORTEST = 6  # a word is not cut below this: "abc..."
_LABEL = 16  # the longest row label of a confusion table
_MOST_CLASSES = 20  # more do not fit beside each other


def table(rows: Sequence[Sequence[str]], header: Sequence[str], align: str = "", width: int | None = None) -> str:
    """Set rows of words and numbers in columns below a header and a rule.

    Parameters
    ----------
    rows : each as long as the header.
    header : the names of the columns.
    align : "l" or "r" for each column, as in "l r r"; by default columns of numbers stand right, others left.
    width : where the lines would be longer, the widest columns of words are cut and end with "..."; numbers never are.

    Returns
    -------
    text : lines without trailing blanks and without a final line break; characters that are not printable ASCII
        are written as escapes, so that no name can break the lines or drive the terminal.

    Raises
    ------
    ValueError : a row of another length, or an `align` that does not fit.
    """
    cells = [[printable(cell) for cell in row] for row in (header, *rows)]
    for row in cells:
        if len(row) != len(header):
            raise ValueError(f"the header has {len(header)} columns, a row has {len(row)}: {row}")
    columns = [[row[i] for row in cells] for i in range(len(header))]
    numeric = [_all_numbers(column[1:]) for column in columns]
    sides = align.split() if align else ["r" if number else "l" for number in numeric]
    if len(sides) != len(header) or not set(sides) <= {"l", "r"}:
        raise ValueError(f'align is "l" or "r" for each of the {len(header)} columns, got {align!r}')
    widths = [max(map(len, column)) for column in columns]
    if width is not None:
        _narrow(widths, [i for i, number in enumerate(numeric) if not number], width)
    lines = [_line([_cut(cell, w) for cell, w in zip(row, widths, strict=True)], widths, sides, _GAP) for row in cells]
    rule = (" " * _GAP).join("-" * w for w in widths)
    return "\n".join([lines[0], rule, *lines[1:]])


def confusion(counts: ArrayLike, class_names: Sequence[str], width: int = 100) -> str:
    """Show how often each class was taken for each: a row is a true class, a column a predicted one.

    Zeros are dots; each row ends with the share of the class that was recognised.

    Parameters
    ----------
    counts : (K, K) whole numbers, counts[true, predicted].
    class_names : (K,); column heads are cut to fit, or are the classes' numbers where cutting makes two the same.
    width : the longest line allowed; for more than 20 classes, or where the table is wider, the most confused
        pairs are listed instead.

    Raises
    ------
    ValueError : counts that are not such a table, or another number of names.
    """
    matrix = _checked(counts, class_names)
    k = len(matrix)
    if k > _MOST_CLASSES:
        return most_confused(counts, class_names)
    cells = [[str(n) if n else "." for n in row] for row in matrix.tolist()]
    shares = [_percent(int(matrix[i, i]), int(matrix[i].sum())) for i in range(k)]
    digits = max((len(cell) for row in cells for cell in row), default=1)
    for heads, labels, gap in _layouts([printable(name) for name in class_names], digits, width):
        widths = [_longest([*labels, "true"]), *[max(digits, _longest(heads))] * k, len("correct")]
        if sum(widths) + gap * (k + 1) <= width:
            break
    else:
        return most_confused(counts, class_names)
    sides = ["l", *"r" * (k + 1)]
    lines = [[label, *row, share] for label, row, share in zip(labels, cells, shares, strict=True)]
    text = [_line(line, widths, sides, gap) for line in (["true", *heads, "correct"], *lines)]
    return "\n".join(["rows: true class; columns: predicted class", *text, _summary(matrix)])


def _layouts(names: list[str], digits: int, width: int) -> Iterator[tuple[list[str], list[str], int]]:
    """Yield column heads, row labels and the gap between columns, from the most telling to the narrowest."""
    labels = [_cut(name, _LABEL) for name in names]
    free = width - _longest([*labels, "true"]) - len("correct") - 2
    column = max(digits, free // max(1, len(names)) - 2)
    heads = [name[:column] for name in names]
    distinct = len(set(heads)) == len(set(labels)) == len(names)
    if distinct and (column >= 3 or heads == names):  # two letters of a longer name say little
        yield heads, labels, 2
    numbers = [str(i) for i in range(len(names))]
    numbered = [_cut(f"{i} {name}", _LABEL) for i, name in enumerate(names)]
    yield numbers, numbered, 2
    room = width - len("correct") - 1 - len(names) * (max(digits, _longest(numbers)) + 1)
    yield numbers, [_cut(label, max(room, _SHORTEST)) for label in numbered], 1


def most_confused(counts: ArrayLike, class_names: Sequence[str], most: int = 10) -> str:
    """List the pairs of classes that are taken for each other most often, the worst first.

    Parameters
    ----------
    counts : (K, K) whole numbers, counts[true, predicted].
    class_names : (K,)
    most : the number of pairs.

    Raises
    ------
    ValueError : counts that are not such a table, or another number of names.
    """
    matrix = _checked(counts, class_names)
    rows = [
        [class_names[t], class_names[p], str(count), _percent(count, total)]
        for t, p, count, total in confused_pairs(matrix, most)
    ]
    if not rows:
        return _summary(matrix)
    return table(rows, ["true", "predicted", "count", "of class"], "l l r r", 100) + "\n" + _summary(matrix)


def confused_pairs(counts: NDArray[Any], most: int) -> list[tuple[int, int, int, int]]:
    """Return the pairs of classes that are taken for each other most often, the worst first.

    Parameters
    ----------
    counts : (K, K) whole numbers, counts[true, predicted]
    most : the number of pairs

    Returns
    -------
    pairs : true, predicted, how many images, and how many the true class has
    """
    wrong = counts.copy()
    np.fill_diagonal(wrong, 0)
    true, predicted = np.nonzero(wrong)
    order = np.argsort(-wrong[true, predicted], kind="stable")[: max(0, most)]
    totals = counts.sum(axis=1)
    pairs = zip(true[order].tolist(), predicted[order].tolist(), strict=True)
    return [(t, p, int(wrong[t, p]), int(totals[t])) for t, p in pairs]


def printable(text: str) -> str:
    """Return `text` in printable ASCII: line breaks, control characters and foreign letters become escapes."""
    return "".join(c if " " <= c <= "~" else c.encode("unicode_escape").decode("ascii") for c in text)


def _line(cells: Sequence[str], widths: Sequence[int], sides: Sequence[str], gap: int) -> str:
    padded = [c.rjust(w) if s == "r" else c.ljust(w) for c, w, s in zip(cells, widths, sides, strict=True)]
    return (" " * gap).join(padded).rstrip()


def _longest(texts: Sequence[str]) -> int:
    return max(map(len, texts), default=0)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(0, width - 3)].rstrip() + "..."


def _narrow(widths: list[int], columns: list[int], width: int) -> None:
    """Take from the widest of the columns, in place, until the line fits or all are at their shortest."""
    while sum(widths) + _GAP * (len(widths) - 1) > width:
        widest = max(columns, key=lambda i: widths[i], default=None)
        if widest is None or widths[widest] <= _SHORTEST:
            return
        widths[widest] -= 1


def _all_numbers(cells: Sequence[str]) -> bool:
    filled = [cell.strip() for cell in cells if cell.strip() not in ("", "-", ".")]
    return bool(filled) and all(_is_number(cell) for cell in filled)


def _is_number(cell: str) -> bool:
    try:
        float(cell.rstrip("%").replace(",", ""))
    except ValueError:
        return False
    return True


def _percent(part: int, whole: int) -> str:
    """Write a share with one decimal; 0.0% and 100.0% are kept for none and all."""
    if not whole:
        return "-"
    thousandths = round(1000 * part / whole)
    if 0 < part < whole:
        thousandths = min(max(thousandths, 1), 999)
    return f"{thousandths / 10:.1f}%"


def _summary(matrix: NDArray[Any]) -> str:
    right, total = int(np.trace(matrix)), int(matrix.sum())
    return f"correct: {right} of {total}" + (f" ({_percent(right, total)})" if total else "")


def _checked(counts: ArrayLike, class_names: Sequence[str]) -> NDArray[Any]:
    matrix = np.asarray(counts)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.dtype.kind not in "iu":
        raise ValueError(f"counts is a square table of whole numbers, got {matrix.dtype} of shape {matrix.shape}")
    if (matrix < 0).any():
        raise ValueError("counts has a negative entry")
    if len(class_names) != len(matrix):
        raise ValueError(f"{len(matrix)} classes need as many names, got {len(class_names)}")
    return matrix.astype(np.int64)  # unsigned counts would wrap where they are negated
