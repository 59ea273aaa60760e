"""Generated images: a coloured shape on a textured background, and where the shape is.

The class is the outline alone.  Position, size, angle and colours are drawn without regard to it, and shape and
background draw their colours from one distribution, so that no mean colour tells a class; the background never has
the shape's hue.  An image is a function of (seed, index) and the size.
"""

from __future__ import annotations

import colorsys
import math
import operator
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from PIL import Image, ImageDraw

from numpy_vit.data.dataset import MOST_IN_MEMORY, Dataset, Split
from numpy_vit.data.randomness import sample_rng
from numpy_vit.data.streamed import OnProgress, silent
from numpy_vit.errors import DataError
from numpy_vit.tree import Array

CLASS_NAMES = ("arrow", "circle", "crescent", "cross", "ring", "square", "star", "triangle")
TEST = 1 << 32  # the index of the first test image: training never gets there, however many images it has
LEAST_SIZE = 8
_EPOCH = 2**64 - 3  # of the random streams: one that no run reaches, lest augmentation draw the same numbers
_FINER = 4  # the outline is drawn so many times as large
_OPPOSITE, _SPREAD = 60 / 360, 30 / 360  # hues: background from the shape's, at least; the background's two, at most
_REPORT = 256  # images between two reports of progress


def make(index: int, size: int | tuple[int, int], seed: int = 0) -> tuple[Array, int, Array]:
    """Draw an image.

    Parameters
    ----------
    index : which one; its class is the remainder of dividing by 8.
    size : (Y, X), or one number for both; 8 at least.

    Returns
    -------
    image : (3, Y, X) uint8
    label : an index into CLASS_NAMES.
    mask : (Y, X) bool, where the shape covers at least half of a pixel.

    Raises
    ------
    ValueError : a size below 8, or an index or seed that is not in 0 .. 2^64 - 1.
    """
    height, width = (size, size) if isinstance(size, int) else size
    if min(height, width) < LEAST_SIZE:
        raise ValueError(f"a shape needs at least {LEAST_SIZE} pixels a side, not {height}x{width}")
    label = operator.index(index) % len(CLASS_NAMES)
    rng = sample_rng(seed, _EPOCH, index)
    cover = _cover(label, height, width, rng)  # (Y, X), 0 ... 1
    hue = rng.random()
    ends = _background_hues(hue, rng)
    shape, one, other = (np.array(_colour(h, rng)) for h in (hue, *ends))  # (3,) each, 0 ... 255
    texture = _TEXTURES[int(3 * rng.random())](height, width, rng)  # (Y, X), 0 ... 1
    background = one + texture[..., np.newaxis] * (other - one)
    image = background + cover[..., np.newaxis] * (shape - background)  # (Y, X, 3)
    return np.rint(image).astype(np.uint8).transpose(2, 0, 1), label, cover >= 0.5


def masks(indices: ArrayLike, size: int | tuple[int, int] = 32, seed: int = 0) -> Array:
    """Return the masks (m, Y, X) of images by their index; test image i of `load_shapes` is index TEST + i."""
    return np.stack([make(index, size, seed)[2] for index in np.asarray(indices).tolist()])


def load_shapes(
    size: int | tuple[int, int] = 32, train: int = 5000, test: int = 1000, seed: int = 0,
    on_progress: OnProgress = silent,
) -> Split:  # fmt: skip
    """Draw a data set; the test images are the same however many there are to train on.

    Parameters
    ----------
    size : (Y, X), or one number for both.
    train, test : how many images; every class equally often, but for one.
    on_progress : called with the images done and all images.

    Raises
    ------
    DataError : fewer than one image in a part, a size below 8, or more images than fit into memory.
    """
    pair = (size, size) if isinstance(size, int) else size
    if min(train, test) < 1 or min(pair) < LEAST_SIZE:
        raise DataError(
            f"shapes needs 1 image in each part and {LEAST_SIZE} pixels a side at least, not {train} and {test} "
            f"images of {pair[0]}x{pair[1]}"
        )
    if 3 * pair[0] * pair[1] * (train + test) > MOST_IN_MEMORY:
        raise DataError(
            f"{train + test:,} shapes of {pair[0]}x{pair[1]} take more than {MOST_IN_MEMORY / 1e9:g} GB: "
            "ask for fewer or smaller ones"
        )
    numbers = {"train": np.arange(train), "test": TEST + np.arange(test)}
    done = 0
    parts = []
    for name, indices in numbers.items():
        images, labels = np.empty((len(indices), 3, *pair), np.uint8), np.empty(len(indices), np.int64)
        for row, index in enumerate(indices.tolist()):
            images[row], labels[row], _ = make(index, pair, seed)
            done += 1
            if done % _REPORT == 0 or done == train + test:
                on_progress(done, train + test)
        parts.append(Dataset(f"shapes {name}", images, labels, CLASS_NAMES))
    return Split(*parts)


def _cover(label: int, height: int, width: int, rng: np.random.Generator) -> Array:
    """Draw where, how large and how turned the shape is, and return how much of each pixel it covers."""
    side = min(height, width)
    radius = side * (0.3 + 0.3 * rng.random()) / 2
    x = radius + (width - 2 * radius) * rng.random()
    y = radius + (height - 2 * radius) * rng.random()
    angle = 2 * math.pi * rng.random()
    canvas = Image.new("L", (_FINER * width, _FINER * height))
    pen = ImageDraw.Draw(canvas)
    for outline, ink in _OUTLINES[CLASS_NAMES[label]]:
        turned = outline * np.exp(1j * angle) * radius + complex(x, y)
        pen.polygon([(_FINER * float(z.real) - 0.5, _FINER * float(z.imag) - 0.5) for z in turned], fill=ink)
    return np.asarray(canvas.reduce(_FINER)) / 255


def _background_hues(hue: float, rng: np.random.Generator) -> tuple[float, float]:
    """Draw two hues near each other: what lies between them is never the shape's."""
    free = 1 - 2 * _OPPOSITE - _SPREAD
    first = hue + _OPPOSITE + free * rng.random()
    first, second = first, first + _SPREAD * rng.random()
    return (first, second) if rng.random() < 0.5 else (second, first)


def _colour(hue: float, rng: np.random.Generator) -> tuple[float, float, float]:
    """Draw a clear colour of a hue."""
    red, green, blue = colorsys.hsv_to_rgb(hue % 1, 0.5 + 0.5 * rng.random(), 0.35 + 0.6 * rng.random())
    return 255 * red, 255 * green, 255 * blue


def _noise(height: int, width: int, rng: np.random.Generator) -> Array:
    """Smooth random hills."""
    cells = np.rint(255 * rng.random((6, 6))).astype(np.uint8)
    return np.asarray(Image.fromarray(cells).resize((width, height), Image.Resampling.BICUBIC)) / 255


def _stripes(height: int, width: int, rng: np.random.Generator) -> Array:
    """Parallel soft stripes, four to eight a side."""
    stripes: Array = 0.5 + 0.5 * np.sin(_waves(height, width, rng.random() * math.pi, rng))
    return stripes


def _checks(height: int, width: int, rng: np.random.Generator) -> Array:
    """Soft checks."""
    angle = rng.random() * math.pi
    first, second = (_waves(height, width, angle + turn, rng) for turn in (0, math.pi / 2))
    checks: Array = 0.5 + 0.5 * np.sin(first) * np.sin(second)
    return checks


def _waves(height: int, width: int, angle: float, rng: np.random.Generator) -> Array:
    y, x = np.mgrid[:height, :width] / min(height, width)
    waves = 2 * math.pi * (4 + 4 * rng.random())
    phases: Array = waves * (x * math.cos(angle) + y * math.sin(angle)) + 2 * math.pi * rng.random()
    return phases


_TEXTURES: tuple[Callable[[int, int, np.random.Generator], Array], ...] = (_noise, _stripes, _checks)


def _round(radius: float = 1.0, centre: complex = 0) -> Array:
    return centre + _spokes(*(radius,) * 64)


def _spokes(*radii: float) -> Array:
    """A closed outline of points at equal angles, their distances in turn."""
    outline: Array = np.array(radii) * np.exp(2j * math.pi * np.arange(len(radii)) / len(radii))
    return outline


def _points(*xy: tuple[float, float]) -> Array:
    return np.array([complex(x, y) for x, y in xy])


_ARM = 0.3  # half the width of the cross's arms
_REACH = math.sqrt(1 - _ARM * _ARM)
_CROSS = _points((_REACH, -_ARM), (_REACH, _ARM), (_ARM, _ARM))
# Polygons in the unit circle, as complex numbers, drawn in turn in white or in black.
_OUTLINES: dict[str, list[tuple[Array, int]]] = {
    "arrow": [(_points((1, 0), (0, 0.8), (0, 0.3), (-0.95, 0.3), (-0.95, -0.3), (0, -0.3), (0, -0.8)), 255)],
    "circle": [(_round(), 255)],
    "crescent": [(_round(), 255), (_round(0.8, 0.45), 0)],
    "cross": [(np.concatenate([_CROSS * 1j**k for k in range(4)]), 255)],
    "ring": [(_round(), 255), (_round(0.55), 0)],
    "square": [(_spokes(1, 1, 1, 1), 255)],
    "star": [(_spokes(*(1, 0.4) * 5), 255)],
    "triangle": [(_spokes(1, 1, 1), 255)],
}
