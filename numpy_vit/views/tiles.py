"""A table of pictures: words above the columns, beside the rows, and below."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PIL import Image

from numpy_vit.tree import Array
from numpy_vit.views.plot import GREY, Canvas, fit, text_width

GAP, _LINE, _MARGIN, _TITLE = 6, 18, 12, 30


class Sheet:
    """A table of pictures of one size.

    Parameters
    ----------
    size : (height, width) of each picture as it is drawn
    columns, rows : their names; empty names take no room
    title : above
    foot : lines below
    """

    def __init__(
        self, size: tuple[int, int], columns: Sequence[str], rows: Sequence[str], title: str, foot: Sequence[str] = ()
    ) -> None:
        self.size, self.columns, self.rows = size, columns, rows
        height, width = size
        self._left = _MARGIN + (max(text_width(name, 12) for name in rows) + GAP if any(rows) else 0)
        self._top = _MARGIN + (_TITLE if title else 0) + (_LINE if any(columns) else 0)
        # a title or a foot may be wider than the pictures
        words = [(title, 15), *((line, 11) for line in foot)]
        needed = max(_MARGIN * 2 + text_width(text, size) for text, size in words)
        full_width = round(max(self._left + len(columns) * (width + GAP) - GAP + _MARGIN, min(needed, 900)))
        below = self._top + len(rows) * (height + GAP) - GAP
        self.canvas = Canvas(full_width, round(below + _MARGIN + len(foot) * _LINE))
        if title:
            self.canvas.text(_MARGIN, _MARGIN + 9, fit(title, full_width - 2 * _MARGIN, 15), 15)
        for i, name in enumerate(columns):
            text = fit(name, width, 12)
            self.canvas.text(self._left + i * (width + GAP) + width / 2, self._top - _LINE / 2, text, align=0.5)
        for i, name in enumerate(rows):
            self.canvas.text(self._left - GAP, self._top + i * (height + GAP) + height / 2, name, align=1.0)
        self.foot = below + _MARGIN / 2 + _LINE / 2  # the height of the first line below
        for i, line in enumerate(foot):
            self.canvas.text(_MARGIN, self.foot + i * _LINE, fit(line, full_width - 2 * _MARGIN, 11), 11, GREY)

    def finish(self, pictures: Sequence[Sequence[Array]]) -> Image.Image:
        """Return the sheet with its pictures (Y, X, 3), row after row, resized to the table's size."""
        height, width = self.size
        sheet = self.canvas.finish()
        for i, row in enumerate(pictures):
            for j, picture in enumerate(row):
                corner = round(self._left + j * (width + GAP)), round(self._top + i * (height + GAP))
                sheet.paste(resized(picture, height, width), corner)
        return sheet


def drawn_size(size: tuple[int, ...], side: int) -> tuple[int, int]:
    """Return the size in which a picture is drawn: a whole multiple where that is at most `side`."""
    height, width = size
    longer = max(height, width)
    if longer <= side:
        return height * (side // longer), width * (side // longer)
    return max(1, round(height * side / longer)), max(1, round(width * side / longer))


def resized(picture: Array, height: int, width: int) -> Image.Image:
    """Return a picture (Y, X, 3) in another size: pixels stay visible where it grows."""
    made = Image.fromarray(np.ascontiguousarray(picture))
    grows = height >= made.height
    return made.resize((width, height), Image.Resampling.NEAREST if grows else Image.Resampling.LANCZOS)
