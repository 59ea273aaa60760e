"""Hugging Face's DINOv2, with and without registers, on disk and as transformers 5 has it in memory."""

from __future__ import annotations

from numpy_vit.checkpoints.layouts.hf_vit import IN_MEMORY, ON_DISK
from numpy_vit.checkpoints.layouts.layout import Layout
from numpy_vit.checkpoints.layouts.rules import Rule, Tensors, absorbed, fused_layer, layer, rename

NAME = "hf-dinov2"
_PREFIXES = ("dinov2.", "dinov2_with_registers.", "")


def detect(tensors: Tensors) -> Layout | None:
    """Return the layout if the first block has a layer scale under Hugging Face's name, or None."""
    for prefix in _PREFIXES:
        for block in (f"{prefix}encoder.layer.{{i}}", f"{prefix}layers.{{i}}"):
            if f"{block.format(i=0)}.layer_scale1.lambda1" in tensors:
                return _recognised(tensors, prefix, block)
    return None


def default(registers: bool, swiglu: bool, classifier: bool) -> Layout:
    """Return the layout as it is written: DINOv2 for image classification, with or without registers."""
    family = "hf-dinov2-registers" if registers else "hf-dinov2"
    prefix = "dinov2_with_registers." if registers else "dinov2."
    block = f"{prefix}encoder.layer.{{i}}"
    gate = ["weights_in"] if swiglu else None
    fields = {"global_pool": "token_avg"} if classifier else {}
    rules = (*_trunk(prefix, block, ON_DISK, registers), *_mlp(block, gate), *_head())
    return Layout(family, family, rules, fields)


def _recognised(tensors: Tensors, prefix: str, block: str) -> Layout:
    names = ON_DISK if f"{block.format(i=0)}.{ON_DISK['q']}.weight" in tensors else IN_MEMORY
    registers = f"{prefix}embeddings.register_tokens" in tensors
    first = block.format(i=0)
    gate = None
    if f"{first}.mlp.weights_in.weight" in tensors:
        gate = ["weights_in"]
    elif f"{first}.mlp.gate_proj.weight" in tensors:
        gate = ["gate_proj", "up_proj"]
    family = "hf-dinov2-registers" if registers else "hf-dinov2"
    rules = (*_trunk(prefix, block, names, registers), *_mlp(block, gate), *_head())
    # the classifier reads the class token and the patches' mean, one behind the other
    fields = {"global_pool": "token_avg"} if "classifier.weight" in tensors else {}
    return Layout(family, family, rules, fields, ignored=(r".*embeddings\.mask_token",))


def _trunk(prefix: str, block: str, names: dict[str, str], registers: bool) -> list[Rule]:
    token, table = f"{prefix}embeddings.cls_token", f"{prefix}embeddings.position_embeddings"
    return [
        *([absorbed(token, table)] if registers else [rename("cls_token", token), rename("pos_embed", table)]),
        rename("reg_token", f"{prefix}embeddings.register_tokens"),
        *layer("patch_embed.proj", f"{prefix}embeddings.patch_embeddings.projection"),
        *layer("blocks.{i}.norm1", f"{block}.norm1"),
        *fused_layer("blocks.{i}.attn.qkv", [f"{block}.{names[name]}" for name in "qkv"]),
        *layer("blocks.{i}.attn.proj", f"{block}.{names['proj']}"),
        rename("blocks.{i}.ls1.gamma", f"{block}.layer_scale1.lambda1"),
        *layer("blocks.{i}.norm2", f"{block}.norm2"),
        rename("blocks.{i}.ls2.gamma", f"{block}.layer_scale2.lambda1"),
        *layer("norm", f"{prefix}layernorm"),
    ]


def _mlp(block: str, gate: list[str] | None) -> list[Rule]:
    if gate is None:
        return [rule for name in ("fc1", "fc2") for rule in layer(f"blocks.{{i}}.mlp.{name}", f"{block}.mlp.{name}")]
    out = "weights_out" if len(gate) == 1 else "down_proj"
    return [
        *fused_layer("blocks.{i}.mlp.fc1", [f"{block}.mlp.{name}" for name in gate]),
        *layer("blocks.{i}.mlp.fc2", f"{block}.mlp.{out}"),
    ]


def _head() -> list[Rule]:
    return layer("head", "classifier")
