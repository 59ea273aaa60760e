"""What a masked autoencoder sees and what it makes of it: images, their visible patches, and the completed images."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
from PIL import Image

from numpy_vit.data.preprocessing import Preprocessing
from numpy_vit.files import replacing
from numpy_vit.models import mae
from numpy_vit.tree import Array, Params
from numpy_vit.views.heat_maps import shown
from numpy_vit.views.plot import GREY, Canvas, fit

SIDE = 128  # pixels of the longer side of a small image; a larger image keeps its own size
LEFT, TOP, BOTTOM, GAP = 112, 40, 28, 8
ROWS = ("original", "masked", "reconstruction")
_REMOVED = 128  # the grey of a removed patch


def draw(
    params: Params,
    images: Array,
    config: mae.Config,
    noise: Array,
    preprocessing: Preprocessing,
    path: str | os.PathLike[str],
    title: str = "",
) -> None:
    """Reconstruct a few images and write the picture as a PNG file, whole or not at all.

    Parameters
    ----------
    params, config : the model's
    images : (B, C, Y, X) bytes
    noise : (B, N), which patches stay, as in mae.forward
    preprocessing : what the model was trained with
    path : the file; its folder exists
    title : stands above

    Raises
    ------
    DataError : images of another size or number of channels than the model was trained on.
    ValueError : what `picture` cannot show.
    """
    pixels = preprocessing.apply(images, params["mask_token"].dtype)
    prediction, mask = mae.reconstruct(params, pixels, config, noise)
    image = picture(pixels, prediction, mask, config, preprocessing.mean, preprocessing.std, title)
    with replacing(path) as file:
        image.save(file, format="PNG", optimize=True)


def picture(
    images: Array,
    prediction: Array,
    mask: Array,
    config: mae.Config,
    mean: Sequence[float],
    std: Sequence[float],
    title: str = "",
) -> Image.Image:
    """Draw a column for each image: the original, what the encoder saw, and the gaps filled with the prediction.

    A prediction of normalised pixels has neither brightness nor contrast; each patch gets those of the original, and
    the picture says so.

    Parameters
    ----------
    images : (B, C, Y, X) as the model takes them, C = 1 or 3
    prediction, mask : (B, N, P) and (B, N), as from mae.reconstruct
    config : the model's
    mean, std : C floats, of bytes / 255: what the images were normalised with
    title : stands above

    Returns
    -------
    image : RGB

    Raises
    ------
    ValueError : no image, images of other than 1 or 3 channels, or another number of means and deviations.
    """
    B, C, Y, X = images.shape
    if B == 0 or C not in (1, 3) or not len(mean) == len(std) == C:
        raise ValueError(
            f"images {images.shape} with {len(mean)} means and {len(std)} deviations cannot be shown: choose one image "
            "or more, grey or RGB, and give a mean and a deviation for each channel"
        )
    original = _bytes(images, mean, std)
    masked = np.where(_enlarged(mask, config)[..., None], _REMOVED, original).astype(np.uint8)
    completed = _bytes(mae.complete(images, prediction, mask, config), mean, std)
    scale = max(1, SIDE // max(Y, X))
    width, height = scale * X, scale * Y
    sheet = _sheet(LEFT + B * (width + GAP) + GAP, TOP + 3 * (height + GAP) + BOTTOM, title, _foot(config))
    for row, tiles in enumerate((original, masked, completed)):
        for column, tile in enumerate(tiles):
            image = Image.fromarray(tile).resize((width, height), Image.Resampling.NEAREST)
            sheet.paste(image, (LEFT + column * (width + GAP), TOP + row * (height + GAP)))
    return sheet


def _sheet(width: int, height: int, title: str, foot: str) -> Image.Image:
    """The words of a picture of this size."""
    canvas = Canvas(width, height)
    canvas.text(GAP, TOP / 2, fit(title, width - 2 * GAP, 15), 15)
    row_height = (height - TOP - BOTTOM) / len(ROWS)
    for i, name in enumerate(ROWS):
        canvas.text(LEFT - GAP, TOP + (i + 0.5) * row_height - GAP / 2, name, align=1.0)
    canvas.text(GAP, height - BOTTOM / 2, fit(foot, width - 2 * GAP, 11), 11, GREY)
    return canvas.finish()


def _foot(config: mae.Config) -> str:
    seen = f"{config.num_visible} of {config.encoder.num_patches} patches seen"
    borrowed = "; brightness and contrast of each patch are the original's"
    return seen + (borrowed if config.norm_pix_loss else "")


def _enlarged(mask: Array, config: mae.Config) -> Array:
    """A mask of patches (B, N) to one of pixels (B, Y, X)."""
    (py, px), grid = config.encoder.patch, config.encoder.grid
    pixels: Array = mask.reshape(len(mask), *grid).repeat(py, axis=1).repeat(px, axis=2)
    return pixels


def _bytes(images: Array, mean: Sequence[float], std: Sequence[float]) -> Array:
    """Normalised images (B, C, Y, X) to bytes (B, Y, X, 3)."""
    return np.stack([shown(image, mean, std) for image in images])
