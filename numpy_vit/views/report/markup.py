"""Pieces of HTML.  Whatever comes from a file goes through `escape`; what the functions return is markup already."""

from __future__ import annotations

import base64
import html
import io
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image

from numpy_vit.tree import Array

_LOSSLESS = 64  # pixels: pictures up to this side are PNG, larger ones JPEG
_QUALITY = 88  # of JPEG
_CONTROL = {**dict.fromkeys(range(32), "\ufffd"), 0x7F: "\ufffd"} | {9: "\t", 10: "\n"}


def escape(text: object) -> str:
    """Return text that is safe between tags and in attributes; control characters become U+FFFD."""
    return html.escape(str(text).translate(_CONTROL))


def tag(name: str, content: str = "", **attributes: str | int | bool | None) -> str:
    """Return an element around markup.

    Parameters
    ----------
    content : markup
    attributes : `class_` is class and `aria_label` is aria-label; values are escaped; True is the name alone, and
        None or False leaves it out
    """
    return f"{opening(name, **attributes)}{content}</{name}>"


def opening(name: str, **attributes: str | int | bool | None) -> str:
    """Return the opening tag of an element, which is all of an img."""
    parts = [name]
    for key, value in attributes.items():
        written = key.rstrip("_").replace("_", "-")
        if value is True:
            parts.append(written)
        elif value is not None and value is not False:
            parts.append(f'{written}="{escape(value)}"')
    return f"<{' '.join(parts)}>"


def paragraph(text: object, **attributes: str | int | bool | None) -> str:
    """Return a paragraph of plain text."""
    return tag("p", escape(text), **attributes)


def note(text: object) -> str:
    """Return what is missing, and how to get it, as a paragraph that stands out."""
    return paragraph(text, class_="note")


def table(caption: str, header: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[int] = ()) -> str:
    """Return a table of plain texts in a frame that scrolls where it is too wide.

    Parameters
    ----------
    caption : says what it shows
    header : the columns' names
    rows : each as long as the header; the first cell names its row
    numbers : the columns that stand right
    """
    sides = ["number" if i in numbers else None for i in range(len(header))]
    head = "".join(tag("th", escape(cell), scope="col", class_=side) for cell, side in zip(header, sides, strict=True))
    lines = []
    for row in rows:
        first = tag("th", escape(row[0]), scope="row", class_=sides[0])
        rest = (tag("td", escape(cell), class_=side) for cell, side in zip(row[1:], sides[1:], strict=True))
        lines.append(tag("tr", first + "".join(rest)))
    return framed(caption, tag("thead", tag("tr", head)) + tag("tbody", "\n".join(lines)))


def framed(caption: str, content: str, class_: str | None = None) -> str:
    """Return a table of the markup `content` in a frame that the keyboard can scroll."""
    inner = tag("table", tag("caption", escape(caption)) + content, class_=class_)
    return tag("div", inner, class_="frame", tabindex=0, role="region", aria_label=caption)


def json_script(identity: str, value: Any) -> str:
    """Return data for the page's script; no text in it can end the element."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return f'<script type="application/json" id="{escape(identity)}">{text}</script>'


def percent(share: float) -> str:
    """Return "81.3 %"; none and all are "0 %" and "100 %", and nothing else is."""
    if share in (0.0, 1.0):
        return f"{share:.0%}".replace("%", " %")
    return f"{100 * min(max(share, 0.001), 0.999):.1f} %"


def picture_url(pixels: Array) -> str:
    """Return a picture (Y, X, 3) or (Y, X, 4) of bytes as a data: URL: exact where it is small or transparent."""
    image = Image.fromarray(np.ascontiguousarray(pixels))
    file = io.BytesIO()
    if max(image.size) <= _LOSSLESS or image.mode == "RGBA":
        image.save(file, format="PNG", optimize=True)
        kind = "png"
    else:
        image.save(file, format="JPEG", quality=_QUALITY, optimize=True)
        kind = "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode('ascii')}"
