"""Does a position table fit the patches and the tokens in front of them?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from numpy_vit.checks.findings import Finding

_NAME = "pos_embed"


def position_mistakes(
    shapes: Mapping[str, tuple[int, ...]], D: int, image_size: tuple[int, int] | None
) -> Iterator[Finding]:
    """Yield what the shape of pos_embed shows.

    Parameters
    ----------
    shapes : of all tensors, under timm's names
    D : the width
    image_size : (Y, X), where known; otherwise a square grid is looked for
    """
    shape = shapes.get(_NAME)
    if shape is None:
        yield Finding("note", "", "no position table: computed (sin-cos), relative or missing")
        return
    if len(shape) == 2 and D in shape:
        yield Finding("wrong", _NAME, f"{shape} lacks the batch axis: it has to be (1, rows, {D})")
        return
    if len(shape) != 3 or shape[2] != D:
        turned = len(shape) == 3 and shape[1] == D
        text = "transposed" if turned else f"the norms have width {D}"
        yield Finding("wrong", _NAME, f"{shape} instead of (1, rows, {D}): {text}")
        return
    rows, prefix = shape[1], _prefix(shapes)
    patch = shapes.get("patch_embed.proj.weight", ())
    if image_size is None or len(patch) != 4:
        yield from _square(rows, prefix)
    else:
        yield from _against_image(rows, prefix, image_size, (patch[2], patch[3]))


def _prefix(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """The tokens in front of the patches, by name."""
    names = ("cls_token", "dist_token", "reg_token")
    return {name: math.prod(shapes[name][:-1]) for name in names if name in shapes}


def _square(rows: int, prefix: dict[str, int]) -> Iterator[Finding]:
    T = sum(prefix.values())
    tokens = " + ".join(f"{count} {name}" for name, count in prefix.items()) or "no prefix token"
    if _root(rows - T):
        return
    if T and _root(rows):
        side = math.isqrt(rows)
        text = f"{rows} rows are {side}x{side} patches without rows for the prefix ({tokens}): right only for a model "
        yield Finding("suspicious", _NAME, text + "that adds positions before the prefix (timm's no_embed_class)")
        return
    other = next((t for t in range(6) if t != T and _root(rows - t)), None)
    if other is None:
        text = f"{rows} rows less {T} ({tokens}) are no square grid: the images were not square; give --image-size"
        yield Finding("suspicious", _NAME, text)
        return
    side = math.isqrt(rows - other)
    what = f"{T - other} prefix rows" if other < T else f"{other - T} prefix tokens"
    text = (
        f"{rows} rows less {T} ({tokens}) are no square grid: either the images were not square (give --image-size), "
    )
    yield Finding("suspicious", _NAME, text + f"or, as {rows} = {side}x{side} + {other}, {what} are missing")


def _against_image(
    rows: int, prefix: dict[str, int], image: tuple[int, int], patch: tuple[int, int]
) -> Iterator[Finding]:
    T = sum(prefix.values())
    what = f"images of {image[0]}x{image[1]} in patches of {patch[0]}x{patch[1]}"
    if image[0] % patch[0] or image[1] % patch[1]:
        yield Finding("wrong", "", f"{what} are no whole grid")
        return
    Y, X = image[0] // patch[0], image[1] // patch[1]
    if rows == Y * X + T:
        return
    if rows == Y * X:
        text = f"{rows} rows for {Y}x{X} patches, none for the {T} prefix tokens (timm's no_embed_class, or lost)"
        yield Finding("suspicious", _NAME, text)
        return
    has = f"{rows} rows" + (f" ({math.isqrt(rows - T)}x{math.isqrt(rows - T)} + {T})" if _root(rows - T) else "")
    text = f"{has}, but {what} need {Y}x{X} + {T} = {Y * X + T}: the table is of another grid and has to be resized"
    yield Finding("suspicious", _NAME, text)


def _root(number: int) -> bool:
    return number > 0 and math.isqrt(number) ** 2 == number
