"""RandAugment: a few operations, drawn for each picture, at one strength.

The operations, their ranges and the configuration strings are timm's (`rand_augment_transform`), which differ from
the paper's: each operation is skipped with probability 1/2, there is no identity among them, and "inc1" makes all
of them stronger with the magnitude, where the paper's posterize, solarize and enhancements grow weaker or darker.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from numpy_vit.data import operations
from numpy_vit.data.operations import Change, Fill
from numpy_vit.data.resized_crop import draw_filter

BOTH = (Image.Resampling.BILINEAR, Image.Resampling.BICUBIC)


class Row(NamedTuple):
    """An operation and what its argument is for a level (magnitude / 10) and a sign."""

    operation: Callable[..., Image.Image]
    argument: Callable[[float, int], float] | None = None
    signed: bool = False  # whether the sign is drawn; it is 1 otherwise
    moves: bool = False  # whether it moves pixels, and so needs a filter and a colour for what comes in


def _enhancement(level: float, sign: int) -> float:
    return level * 1.8 + 0.1


def _stronger(level: float, sign: int) -> float:
    return max(0.1, 1 + sign * (level * 0.9))


PLAIN = {
    "AutoContrast": Row(operations.auto_contrast),
    "Equalize": Row(operations.equalize),
    "Invert": Row(operations.invert),
    "Rotate": Row(operations.rotate, lambda level, sign: sign * (level * 30), True, True),
    "Posterize": Row(operations.posterize, lambda level, sign: int(level * 4)),
    "Solarize": Row(operations.solarize, lambda level, sign: min(256, int(level * 256))),
    "SolarizeAdd": Row(operations.solarize_add, lambda level, sign: min(128, int(level * 110))),
    "Color": Row(operations.saturation, _enhancement),
    "Contrast": Row(operations.contrast, _enhancement),
    "Brightness": Row(operations.brightness, _enhancement),
    "Sharpness": Row(operations.sharpness, _enhancement),
    "ShearX": Row(operations.shear_x, lambda level, sign: sign * (level * 0.3), True, True),
    "ShearY": Row(operations.shear_y, lambda level, sign: sign * (level * 0.3), True, True),
    "TranslateXRel": Row(operations.translate_x, lambda level, sign: sign * (level * 0.45), True, True),
    "TranslateYRel": Row(operations.translate_y, lambda level, sign: sign * (level * 0.45), True, True),
}
INCREASING = PLAIN | {
    "Posterize": Row(operations.posterize, lambda level, sign: 4 - int(level * 4)),
    "Solarize": Row(operations.solarize, lambda level, sign: 256 - min(256, int(level * 256))),
    "Color": Row(operations.saturation, _stronger, True),
    "Contrast": Row(operations.contrast, _stronger, True),
    "Brightness": Row(operations.brightness, _stronger, True),
    "Sharpness": Row(operations.sharpness, _stronger, True),
}

# The sections of a configuration, and what their numbers are.
SECTIONS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "m": ("magnitude", int),
    "n": ("count", int),
    "p": ("probability", float),
    "mstd": ("deviation", lambda text: math.inf if float(text) > 100 else float(text)),
    "mmax": ("largest", int),
    "inc": ("increasing", lambda text: bool(int(text))),
}


@dataclass(frozen=True)
class RandAugment:
    """Draws `count` operations with replacement and does each with `probability`.

    With "rand-m9-n2-mstd0.5-inc1" a 32x32 picture takes about 105 µs, a grey one 60, with the way to Pillow and back.

    Parameters
    ----------
    magnitude : strength; 10 is the end of the operations' usual ranges.
    count : operations a picture.
    probability : of each operation drawn.
    deviation : of a normal distribution around `magnitude`, drawn for each operation; infinity stands for a uniform
        one in 0 ... magnitude.
    largest : where a magnitude ends; a larger one is cut to it.
    increasing : whether all operations grow stronger with the magnitude.
    fill : what comes in from outside, a byte a channel; timm's is the data's mean.
    resampling : the filters that one is drawn from where pixels move.

    Raises
    ------
    ValueError : a number out of range.

    Source: Cubuk et al. 2020, RandAugment, algorithm 2; timm's auto_augment.py.
    """

    magnitude: int = 10
    count: int = 2
    probability: float = 0.5
    deviation: float = 0.0
    largest: int = 10
    increasing: bool = False
    fill: Fill = (128, 128, 128)
    resampling: tuple[Image.Resampling, ...] = BOTH

    def __post_init__(self) -> None:
        if self.count < 1 or self.largest < 1:
            raise ValueError(f"RandAugment needs n and mmax of at least 1, not {self.count} and {self.largest}")
        if self.magnitude < 0 or not 0 <= self.probability <= 1 or not self.deviation >= 0:
            raise ValueError(
                "RandAugment needs m and mstd that are not negative and p in [0, 1], "
                f"not {self.magnitude}, {self.deviation} and {self.probability}"
            )

    @classmethod
    def parse(
        cls, text: str, fill: Fill = (128, 128, 128), resampling: tuple[Image.Resampling, ...] = BOTH
    ) -> RandAugment:
        """Read a configuration such as "rand-m9-n2-mstd0.5-inc1".

        Its sections, in any order and each at most once: m (magnitude), n (operations a picture), p (probability of
        each), mstd (deviation of the magnitude, above 100: uniform), mmax (its upper end), inc (0 or 1).

        Raises
        ------
        ValueError : another section, one that comes twice, or a number that does not fit, by name.
        """
        first, *sections = text.split("-")
        if first != "rand":
            raise ValueError(f"a RandAugment configuration begins with 'rand', as in 'rand-m9-n2', not {text!r}")
        fields: dict[str, Any] = {}
        for section in sections:
            found = re.fullmatch(r"(mstd|mmax|inc|m|n|p)(\d+(?:\.\d+)?)", section)
            name, convert = SECTIONS[found[1]] if found else ("", float)
            if not found or name in fields:
                why = "comes twice" if found else "is not one of " + ", ".join(f"{key}<number>" for key in SECTIONS)
                raise ValueError(f"{text!r}: section {section!r} {why}")
            try:
                fields[name] = convert(found[2])
            except ValueError:
                raise ValueError(f"{text!r}: section {section!r} needs a whole number") from None
        return cls(**fields, fill=fill, resampling=resampling)

    def draw(self, rng: np.random.Generator) -> list[Change]:
        """Draw what is done to one picture."""
        rows = list((INCREASING if self.increasing else PLAIN).values())
        chosen = [rows[int(rng.integers(len(rows)))] for _ in range(self.count)]
        drawn = [self._change(row, rng) for row in chosen]
        return [change for change in drawn if change]

    def _change(self, row: Row, rng: np.random.Generator) -> Change | None:
        if self.probability < 1 and rng.random() > self.probability:
            return None
        magnitude: float = self.magnitude
        if self.deviation == math.inf:
            magnitude = rng.uniform(0, magnitude)
        elif self.deviation > 0:
            magnitude = rng.normal(magnitude, self.deviation)
        if row.argument is None:
            return row.operation
        level = max(0.0, min(magnitude, self.largest)) / 10
        sign = -1 if row.signed and rng.random() > 0.5 else 1
        arguments: tuple[Any, ...] = (row.argument(level, sign),)
        if row.moves:
            arguments += (draw_filter(self.resampling, rng), self.fill)
        return lambda picture: row.operation(picture, *arguments)
