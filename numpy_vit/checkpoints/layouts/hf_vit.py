"""Hugging Face's ViT, DeiT and the encoder of ViTMAE: as on disk, and as transformers 5 has them in memory."""

from __future__ import annotations

from numpy_vit.checkpoints.layouts.layout import Layout
from numpy_vit.checkpoints.layouts.rules import Rule, Tensors, fused_layer, layer, rename
from numpy_vit.models import deit

NAME = "hf-vit"
PREFIXES = ("vit.", "deit.", "")  # a model for a task has one of the first two, a bare one none
ON_DISK = {
    "block": "encoder.layer.{i}", "q": "attention.attention.query", "k": "attention.attention.key",
    "v": "attention.attention.value", "proj": "attention.output.dense", "fc1": "intermediate.dense",
    "fc2": "output.dense",
}  # fmt: skip
IN_MEMORY = {
    "block": "layers.{i}", "q": "attention.q_proj", "k": "attention.k_proj", "v": "attention.v_proj",
    "proj": "attention.o_proj", "fc1": "mlp.fc1", "fc2": "mlp.fc2",
}  # fmt: skip
_IGNORED = (r"decoder\..*", r".*embeddings\.mask_token", r".*pooler\..*")


def detect(tensors: Tensors) -> Layout | None:
    """Return the layout of ViT, DeiT (either class) or ViTMAE, on disk or in memory, or None."""
    for prefix in PREFIXES:
        for names in (ON_DISK, IN_MEMORY):
            block = prefix + names["block"].format(i=0)
            if f"{block}.layernorm_before.weight" in tensors and f"{block}.{names['q']}.weight" in tensors:
                return _recognised(tensors, prefix, names)
    return None


def default(distilled: bool) -> Layout:
    """Return the layout as it is written: ViTForImageClassification, or DeiT's class with both heads."""
    return _distilled("deit.", ON_DISK) if distilled else _plain("vit.", ON_DISK, "hf-vit")


def _recognised(tensors: Tensors, prefix: str, names: dict[str, str]) -> Layout:
    if "distillation_classifier.weight" in tensors:
        return _distilled(prefix, names)
    if f"{prefix}embeddings.distillation_token" in tensors:
        # DeiTForImageClassification looks at the class token alone: its other token is a register
        token = rename("reg_token", f"{prefix}embeddings.distillation_token")
        return _plain(prefix, names, "hf-deit", token)
    return _plain(prefix, names, "hf-mae" if "decoder.mask_token" in tensors else "hf-vit")


def _plain(prefix: str, names: dict[str, str], family: str, *more: Rule) -> Layout:
    return Layout(family, family, (*_trunk(prefix, names), *layer("head", "classifier"), *more), ignored=_IGNORED)


def _distilled(prefix: str, names: dict[str, str]) -> Layout:
    heads = [*layer("head", "cls_classifier"), *layer("head_dist", "distillation_classifier")]
    token = rename("dist_token", f"{prefix}embeddings.distillation_token")
    rules = (*_trunk(prefix, names), token, *heads)
    return Layout("hf-deit", "hf-deit", rules, ignored=_IGNORED, model=deit)


def _trunk(prefix: str, names: dict[str, str]) -> list[Rule]:
    block = f"{prefix}{names['block']}"
    return [
        rename("cls_token", f"{prefix}embeddings.cls_token"),
        rename("pos_embed", f"{prefix}embeddings.position_embeddings"),
        *layer("patch_embed.proj", f"{prefix}embeddings.patch_embeddings.projection"),
        *layer("blocks.{i}.norm1", f"{block}.layernorm_before"),
        *fused_layer("blocks.{i}.attn.qkv", [f"{block}.{names[name]}" for name in "qkv"]),
        *layer("blocks.{i}.attn.proj", f"{block}.{names['proj']}"),
        *layer("blocks.{i}.norm2", f"{block}.layernorm_after"),
        *layer("blocks.{i}.mlp.fc1", f"{block}.{names['fc1']}"),
        *layer("blocks.{i}.mlp.fc2", f"{block}.{names['fc2']}"),
        *layer("norm", f"{prefix}layernorm"),
    ]
