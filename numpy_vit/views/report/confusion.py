"""How often each class was taken for each, as a table of HTML."""

from __future__ import annotations

import numpy as np

from numpy_vit.views.report.answers import Answers
from numpy_vit.views.report.markup import escape, framed, paragraph, percent, table, tag
from numpy_vit.views.table import confused_pairs

MOST_CLASSES = 20  # more do not fit beside each other
_PAIRS = 20
_SHADES = 10  # of the style sheet, .s0 to .s10


def section(answers: Answers) -> str:
    """Return the table of all classes, or, of many, the pairs that are confused most and the worst classes."""
    counts, names = answers.counts, list(answers.class_names)
    right, total = int(np.trace(counts)), int(counts.sum())
    line = f"{answers.data}: {right:,} of {total:,} images recognised, {percent(right / total)}."
    if len(names) <= MOST_CLASSES:
        return paragraph(line) + _whole(counts.tolist(), names)
    return paragraph(line) + _pairs(answers) + _worst(answers)


def _whole(counts: list[list[int]], names: list[str]) -> str:
    head = tag("th", "true class", scope="col")
    head += "".join(tag("th", escape(name), scope="col", class_="number") for name in names)
    head += tag("th", "correct", scope="col", class_="number")
    lines = []
    for i, row in enumerate(counts):
        total = sum(row)
        cells = [tag("th", escape(names[i]), scope="row")]
        for j, count in enumerate(row):
            shade = "" if not count else f"s{max(1, round(_SHADES * count / total))}"
            kind = "right" if i == j else "taken"
            cells.append(tag("td", str(count) if count else "·", class_=f"number {kind} {shade}".rstrip()))
        cells.append(tag("td", percent(row[i] / total) if total else "–", class_="number"))
        lines.append(tag("tr", "".join(cells)))
    caption = "A row is a true class, a column what it was taken for"
    content = tag("thead", tag("tr", head)) + tag("tbody", "\n".join(lines))
    return framed(caption, content, class_="confusion")


def _pairs(answers: Answers) -> str:
    names = answers.class_names
    rows = [
        [names[t], names[p], f"{count:,}", percent(count / total)]
        for t, p, count, total in confused_pairs(answers.counts, _PAIRS)
    ]
    if not rows:
        return ""
    header = ["true class", "taken for", "images", "of the class"]
    return table("The pairs of classes that are confused most", header, rows, numbers=(2, 3))


def _worst(answers: Answers) -> str:
    counts = answers.counts
    of_class = counts.sum(axis=1)
    known = np.flatnonzero(of_class)
    shares = np.diag(counts)[known] / of_class[known]
    rows = [
        [answers.class_names[k], f"{of_class[k]:,}", percent(float(shares[i]))]
        for i in np.argsort(shares, kind="stable")[:_PAIRS].tolist()
        for k in [int(known[i])]
    ]
    return table("The classes that are recognised least", ["class", "images", "correct"], rows, numbers=(1, 2))
