"""One file a foreign layout: how to recognise it, and the way to our names and shapes and back."""

from __future__ import annotations

from numpy_vit.checkpoints.layouts import (
    deit3,
    dinov2,
    google_npz,
    hf_clip,
    hf_dinov2,
    hf_vit,
    mae,
    openai_clip,
    timm,
    torch_encoder,
    torch_mha,
    torchvision,
    tutorial,
    vit_pytorch,
)
from numpy_vit.checkpoints.layouts.layout import Assumption, Layout
from numpy_vit.checkpoints.layouts.rules import Tensors

__all__ = ["LAYOUTS", "Assumption", "Layout", "detect"]

# The first that recognises the tensors is taken: special ones before those of which they are a variety.
LAYOUTS = (
    google_npz, openai_clip, torchvision, vit_pytorch, hf_dinov2, hf_vit, hf_clip, deit3, mae, dinov2, tutorial, timm,
    torch_encoder, torch_mha,
)  # fmt: skip


def detect(tensors: Tensors) -> Layout | None:
    """Return the layout of these tensors, or None if no file here knows it."""
    return next((layout for module in LAYOUTS if (layout := module.detect(tensors)) is not None), None)
