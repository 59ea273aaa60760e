"""Numbers as colours that stay apart for colour-blind eyes, and in grey print."""

from __future__ import annotations

import numpy as np

from numpy_vit.tree import Array

# Every ninth of viridis (van der Walt & Smith 2015, CC0): lightness rises evenly from dark violet to yellow.
_VIRIDIS = "440154 482878 3e4a89 31688e 26828e 1f9e89 35b779 6dcd59 b4de2c fde725"
# Okabe & Ito's blue and vermilion around a light grey, through lighter steps of each.
_BLUE_VERMILION = "0072b2 73b1d5 f2f2f2 ea9f73 d55e00"


def sequential(values: Array) -> Array:
    """Return colours (..., 3) of bytes for values in 0 … 1, from dark to light; beyond them the end's colour."""
    return _between(values, _VIRIDIS)


def diverging(values: Array) -> Array:
    """Return colours (..., 3) of bytes for values in -1 … 1: blue below 0, light grey at 0, vermilion above."""
    return _between((values + 1) / 2, _BLUE_VERMILION)


def _between(values: Array, stops: str) -> Array:
    colours = np.array([list(bytes.fromhex(stop)) for stop in stops.split()])  # (stops, 3)
    places = np.linspace(0, 1, len(colours))
    channels = [np.interp(values, places, colours[:, channel]) for channel in range(3)]
    found: Array = np.stack(channels, axis=-1).round().astype(np.uint8)
    return found
