"""Maps in a byte a number, as the page carries them.

A map is a row of R numbers: those of the T prefix tokens stay as they are, float32; those of the N patches share one
scale, the largest magnitude among them.  Attention is a few large numbers and many small ones, so a code counts steps
of the square root:

    weights    value = scale · (code / 255)²
    gradients  value = scale · sign · ((code - 128) / 127)², with the sign of code - 128

A value is off by at most √(value · scale) / 255, or / 127, and half a step's square more; the largest is exact.
Written, a block of maps is all scales, all prefix numbers (float32, little-endian), all codes; deflated, in base 64.
"""

from __future__ import annotations

import base64
import zlib
from dataclasses import dataclass

import numpy as np

from numpy_vit.tree import Array


@dataclass(frozen=True)
class Packed:
    """Codes (..., N) of a byte each, scales (...), prefix (..., T), the code of 0, and the steps to a row's scale."""

    codes: Array
    scales: Array
    prefix: Array
    zero: int
    steps: int

    @property
    def values(self) -> Array:
        """(..., T+N) float32, what the page shows."""
        share = (self.codes.astype(np.float32) - self.zero) / np.float32(self.steps)
        patches = np.sign(share) * share * share * self.scales[..., np.newaxis]
        return np.concatenate([self.prefix, patches], axis=-1)


def weights(maps: Array, T: int) -> Packed:
    """Pack maps (..., T+N) without negative numbers: the code of a row's largest patch is 255."""
    return _packed(maps, T, 0, 255)


def signed(maps: Array, T: int) -> Packed:
    """Pack maps (..., T+N) of both signs: 0 is 128, the patch of a row's largest magnitude 1 or 255."""
    return _packed(maps, T, 128, 127)


def _packed(maps: Array, T: int, zero: int, steps: int) -> Packed:
    prefix, patches = maps[..., :T].astype(np.float32), maps[..., T:]
    scales = np.abs(patches).max(axis=-1).astype(np.float32)  # (...)
    divisors = np.where(scales > 0, scales, np.float32(1))[..., np.newaxis]
    codes = np.rint(steps * np.sign(patches) * np.sqrt(np.abs(patches) / divisors)) + zero
    return Packed(codes.clip(0, 255).astype(np.uint8), scales, prefix, zero, steps)


def written(packed: Packed) -> str:
    """Return the scales, prefix numbers and codes as text."""
    numbers = [packed.scales.astype("<f4").tobytes(), packed.prefix.astype("<f4").tobytes(), packed.codes.tobytes()]
    return base64.b64encode(zlib.compress(b"".join(numbers), 9)).decode("ascii")
