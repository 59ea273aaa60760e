"""Learning from labels and from a teacher's logits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from numpy_vit.layers import cross_entropy, kl_divergence
from numpy_vit.training.objectives import CrossEntropy
from numpy_vit.tree import Array, Cache

KINDS = ("soft", "hard")


@dataclass(frozen=True)
class Distillation:
    """The mean over the images of (1 - α) times the labels' cross-entropy plus α times the teacher's part.

    The teacher's part is the divergence from its softened distribution ("soft"), or the cross-entropy with the class
    that it takes the image for ("hard", without label smoothing).  A model of one head learns both from the same
    logits.  One of two heads, (labels, teacher) as DeiT returns them, learns each with its own.

    facebook's code divides the soft part by all B·K logits, which makes its α weigh K times less; here it is divided
    by the B images, as the paper's equation says and timm's token distillation does.

    Parameters
    ----------
    labels : the labels' part; its samples have no weights
    teacher : the teacher's logits (B, K) of the batch's images
    kind : "soft" or "hard"
    alpha : α
    temperature : T of the soft part, as in kl_divergence

    Raises
    ------
    ValueError : weighted labels, logits of another shape than (B, K), or a value out of range.

    Source: Touvron et al. 2021 (DeiT), equations 2 and 3; facebookresearch/deit, losses.py.
    """

    labels: CrossEntropy
    teacher: Array
    kind: str = "soft"
    alpha: float = 0.5
    temperature: float = 3.0

    def __post_init__(self) -> None:
        if self.labels.weights is not None:
            raise ValueError("distillation takes no sample weights: the teacher's part would not have them")
        if self.teacher.ndim != 2 or len(self.teacher) != len(self.labels.targets):
            raise ValueError(
                f"the teacher's logits {self.teacher.shape} have to be (B, K), one row for each of "
                f"{len(self.labels.targets)} targets"
            )
        if self.kind not in KINDS:
            raise ValueError(f"kind is one of {', '.join(KINDS)}, not {self.kind!r}")
        if not 0 <= self.alpha <= 1:
            raise ValueError(f"alpha lies in [0, 1], not {self.alpha}")
        if not 0 < self.temperature < math.inf:
            raise ValueError(f"temperature has to be positive, not {self.temperature}")

    @property
    def denominator(self) -> float:
        """The number of images."""
        return self.labels.denominator

    def forward(self, output: Any, part: slice) -> tuple[Array, Cache]:
        """Return the sum of the part's losses; output : (b, K), or two of them."""
        two_heads = isinstance(output, tuple)
        z, z_taught = output if two_heads else (output, output)
        loss, c_labels = self.labels.forward(z, part)
        taught, c_taught = self._taught(z_taught, self.teacher[part])
        return (1 - self.alpha) * loss + self.alpha * taught, (two_heads, c_labels, c_taught)

    def backward(self, dloss: float, cache: Cache) -> Any:
        """Return dlogits (b, K), or two of them.

        (1) two heads: each part's gradient goes to its own logits
        (2) one head: both parts are functions of the same logits, so that their gradients add up
        """
        two_heads, c_labels, c_taught = cache
        layer = cross_entropy if self.kind == "hard" else kl_divergence
        dz = self.labels.backward((1 - self.alpha) * dloss, c_labels)
        dz_taught = layer.backward(self.alpha * dloss, c_taught)
        return (dz, dz_taught) if two_heads else dz + dz_taught  # (1), (2)

    def logits(self, output: Any) -> Array:
        """Return the output itself, or the mean of both heads, which is what DeiT predicts with."""
        found: Array = (output[0] + output[1]) / 2 if isinstance(output, tuple) else output
        return found

    def _taught(self, z: Array, teacher: Array) -> tuple[Array, Cache]:
        if self.kind == "hard":
            return cross_entropy.forward(z, teacher.argmax(axis=1), reduction="sum")
        return kl_divergence.forward(z, teacher, self.temperature, "sum")
