"""Everything that ports are known to do differently, to be tried in our own model."""

from __future__ import annotations

import re
from collections.abc import Iterator

from numpy_vit.checks.causes.alternative import Alternative
from numpy_vit.checks.causes.attention import attention
from numpy_vit.checks.causes.embedding import embedding
from numpy_vit.checks.causes.norms import norms
from numpy_vit.checks.causes.rest import activations, left_out, pooling
from numpy_vit.checks.port import Port

__all__ = ["Alternative", "alternatives", "alternatives_in_block"]

ALL = r"\d+"


def alternatives(port: Port) -> Iterator[Alternative]:
    """Yield what may differ in the whole model, the commoner first."""
    yield from embedding(port)
    yield from norms(port)
    yield from attention(port, ALL)
    yield from activations(port)
    yield from pooling(port)
    yield from left_out(port, ALL)


def alternatives_in_block(port: Port, tensor: str) -> Iterator[Alternative]:
    """Yield what may differ in the one block that computes a tensor, "blocks.3.attn"."""
    match = re.match(r"blocks\.(\d+)\b", tensor)
    if match is None:
        return
    index = match[1]
    for one in (*attention(port, index), *left_out(port, index)):
        yield Alternative(
            f"{one.name} in block {index}", f"{one.applied} in block {index} alone", f"{one.says} in block {index}",
            one.change,
        )  # fmt: skip
