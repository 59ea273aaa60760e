"""What a family does that its files do not say: LayerNorm's eps, the activation, how positions are resized."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Family:
    """The conventions of one family; `positions` is a key of resize.RESIZES."""

    title: str
    eps: float
    act: str = "gelu"
    positions: str = "half_pixel"


FAMILIES: dict[str, Family] = {
    "timm": Family("timm's ViT", 1e-6, positions="timm"),
    "timm-clip": Family("timm's CLIP towers", 1e-5, positions="timm"),
    "timm-siglip": Family("timm's SigLIP towers", 1e-6, positions="timm"),
    "deit": Family("DeiT", 1e-6),
    "mae": Family("MAE", 1e-6),
    "dino": Family("DINO", 1e-6, positions="dino"),
    "dinov2": Family("DINOv2", 1e-6, positions="dino"),
    "dinov2-registers": Family("DINOv2 with registers", 1e-6, positions="timm"),
    "torchvision": Family("torchvision's vit_*", 1e-6, positions="torchvision"),
    "google": Family("Google's vision_transformer", 1e-6, "gelu_tanh", "google"),
    "big_vision": Family("Google's big_vision", 1e-6, "gelu_tanh", "google"),
    "openai-clip": Family("OpenAI's CLIP", 1e-5, "quick_gelu"),
    "hf-vit": Family("Hugging Face's ViT", 1e-12),
    "hf-deit": Family("Hugging Face's DeiT", 1e-12),
    "hf-mae": Family("Hugging Face's ViTMAE", 1e-12),
    "hf-dinov2": Family("Hugging Face's DINOv2", 1e-6),
    "hf-dinov2-registers": Family("Hugging Face's DINOv2 with registers", 1e-6, positions="timm"),
    "hf-clip": Family("Hugging Face's CLIP", 1e-5, "quick_gelu"),
    "hf-siglip": Family("Hugging Face's SigLIP", 1e-6, "gelu_tanh"),
    "vit-pytorch": Family("vit-pytorch", 1e-5),
    "torch": Family("models made of torch.nn's layers", 1e-5),
}
