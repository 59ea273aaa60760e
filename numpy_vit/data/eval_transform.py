"""From a picture to a model's input, as in evaluation: resize, crop the centre, normalise.

Equal to torchvision's Resize, CenterCrop, ToTensor, Normalize on Pillow images: the same Pillow resampling, and
torchvision's rounding of sizes and corners.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from PIL import Image

from numpy_vit.data.transforms import normalise
from numpy_vit.errors import DataError
from numpy_vit.tree import Array

RESAMPLING = {filter.name.lower(): filter for filter in Image.Resampling}
_MOST_PIXELS = 178_956_970  # of the resized image: Pillow's own limit for what it opens


@dataclass(frozen=True)
class EvalTransform:
    """How a picture becomes the model's input.

    Parameters
    ----------
    size : (Y, X) of the result, cropped from the centre; where the resized picture is smaller, black is added
    resize : (Y, X) to resize to before the crop
    squash : resize to exactly that, whatever the picture's shape; otherwise its shape is kept and it covers `resize`
    resample : "bicubic", "bilinear", "lanczos", "nearest", "box" or "hamming"
    antialias : widen the filter where the picture shrinks; without it only "bilinear" with `squash`, as TensorFlow's
        resize, whose results are then cut to whole numbers
    mean, std : of the channels, for values in 0 ... 1
    floor_corner : where the crop's corner falls on half a pixel, take the one before it, as transformers does;
        torchvision takes the even one

    Raises
    ------
    ValueError : sizes below 1, an unknown filter, statistics that do not fit.
    """

    size: tuple[int, int]
    resize: tuple[int, int]
    squash: bool
    resample: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    antialias: bool = True
    floor_corner: bool = False

    def __post_init__(self) -> None:
        if min(*self.size, *self.resize) < 1:
            raise ValueError(f"size {self.size} and resize {self.resize} must be at least 1")
        if self.resample not in RESAMPLING:
            raise ValueError(f"resample {self.resample!r} is unknown: choose one of {', '.join(RESAMPLING)}")
        if not self.antialias and not (self.resample == "bilinear" and self.squash):
            raise ValueError("antialias=False is built for resample 'bilinear' with squash=True only")
        if len(self.mean) != len(self.std) or not all(map(math.isfinite, self.mean + self.std)) or min(self.std) <= 0:
            raise ValueError(f"mean must be finite and std positive, one a channel, not {self.mean} and {self.std}")

    def crop(self, picture: Image.Image) -> Image.Image:
        """Resize and crop a picture.

        Raises
        ------
        DataError : a picture so narrow that it would become enormous.
        """
        height, width = self._resized(picture.height, picture.width)
        if height * width > _MOST_PIXELS:
            raise DataError(
                f"a picture of {picture.width}x{picture.height} pixels would be resized to {width}x{height}: "
                "crop it to a less extreme shape"
            )
        if not self.antialias:
            whole = (0, 0, picture.width, picture.height)
            picture = picture.transform((width, height), Image.Transform.EXTENT, whole, RESAMPLING["bilinear"])
        elif (height, width) != (picture.height, picture.width):
            picture = picture.resize((width, height), RESAMPLING[self.resample])
        return _centre(picture, *self.size, self.floor_corner)

    def apply(self, picture: Image.Image) -> Array:
        """Return the model's input (1, C, Y, X) in float32.

        Raises
        ------
        DataError : a picture of another number of channels, or one that `crop` refuses.
        """
        pixels = np.asarray(self.crop(picture))
        image = pixels.reshape(*pixels.shape[:2], -1).transpose(2, 0, 1)[np.newaxis]
        if image.shape[1] != len(self.mean):
            raise DataError(f"a picture of {image.shape[1]} channels does not fit a model of {len(self.mean)}")
        return normalise(image, self.mean, self.std)

    def for_channels(self, channels: int) -> EvalTransform:
        """Return the same transform for pictures of `channels`; a grey's statistics are the means of the colours'."""
        if channels != 1 or len(self.mean) == 1:
            return self
        mean, std = (sum(values) / len(values) for values in (self.mean, self.std))
        return replace(self, mean=(mean,), std=(std,))

    def to_json(self) -> dict[str, Any]:
        """Return the fields as a plain dict."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}

    @classmethod
    def of_training(cls, stored: Mapping[str, Any]) -> EvalTransform:
        """Make the transform of a checkpoint of ours from the `Preprocessing` that is stored in it.

        A picture is resized until it covers the size and cropped in the centre, as `data.load` does with its images.

        Raises
        ------
        DataError : a stored value that is missing or damaged.
        """
        from numpy_vit.data.preprocessing import Preprocessing

        of = Preprocessing.from_json(stored)
        return cls(of.size, of.size, False, "bicubic", of.mean, of.std)

    def __str__(self) -> str:
        (Y, X), (ry, rx) = self.size, self.resize
        if self.squash:
            how = f"resized to {rx}x{ry} whatever its shape"
        else:
            how = f"shorter side to {ry}" if ry == rx else f"resized to cover {rx}x{ry}"
        crop = "" if self.squash and self.size == self.resize else f", centre {X}x{Y}"
        filter = self.resample if self.antialias else f"{self.resample} without antialiasing"
        mean, std = (" ".join(f"{value:.4g}" for value in row) for row in (self.mean, self.std))
        return f"{how} ({filter}){crop}, mean {mean}, std {std}"

    def _resized(self, height: int, width: int) -> tuple[int, int]:
        """The size before the crop, rounded as torchvision does (timm's ResizeKeepRatio where the sides differ)."""
        if self.squash:
            return self.resize
        Y, X = self.resize
        if Y == X:
            longer = int(Y * max(height, width) / min(height, width))
            return (Y, longer) if height <= width else (longer, Y)
        ratio = min(height / Y, width / X)
        return max(1, round(height / ratio)), max(1, round(width / ratio))


def _centre(picture: Image.Image, Y: int, X: int, floor: bool) -> Image.Image:
    """Cut out the centre, with black around what is too small."""
    missing_x, missing_y = max(0, X - picture.width), max(0, Y - picture.height)
    if missing_x or missing_y:
        padded = Image.new(picture.mode, (picture.width + missing_x, picture.height + missing_y))
        padded.paste(picture, (missing_x // 2, missing_y // 2))
        picture = padded
    whole = math.floor if floor else round
    left, top = whole((picture.width - X) / 2), whole((picture.height - Y) / 2)
    return picture.crop((left, top, left + X, top + Y))
