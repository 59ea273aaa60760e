"""PyTorch's side of a benchmark row: timm's ViT, torch.optim.AdamW, and the protocol of numpy_vit.bench.

    python scripts/contenders/torch_eager.py tiny-step --workers 2 --inputs inputs.npz [--variant shortcut|compile]

The variant "shortcut" computes the last block's queries, attention, projection and MLP for the class token alone, as
NumPy does; "compile" is torch.compile's model.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
import torch.nn.functional as F
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from numpy_vit.bench import contender, measure, protocol
from numpy_vit.bench.workloads import LEARNING_RATE, WEIGHT_DECAY, Inputs, Workload

VARIANTS = ("eager", "shortcut", "compile")


class ClassTokenBlock(nn.Module):
    """timm's Block where nobody reads but the class token: every token's key and value, one token's all else."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, x: Tensor) -> Tensor:
        """Tokens (B, N, D) to the class token (B, 1, D)."""
        block, attn = self.block, self.block.attn
        B, N, D = x.shape
        H, d = attn.num_heads, attn.head_dim
        h = block.norm1(x)
        q = F.linear(h[:, :1], attn.qkv.weight[:D], attn.qkv.bias[:D]).reshape(B, 1, H, d).transpose(1, 2)
        kv = F.linear(h, attn.qkv.weight[D:], attn.qkv.bias[D:]).reshape(B, N, 2, H, d)
        k, v = kv.permute(2, 0, 3, 1, 4).unbind(0)  # (B, H, N, d)
        o = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(B, 1, D)
        x = x[:, :1] + attn.proj(o)
        return x + block.mlp(block.norm2(x))


def build_model(workload: Workload, inputs: Inputs, variant: str) -> nn.Module:
    """Return timm's model with our parameters, which have its names."""
    config = workload.config
    with torch.device("meta"):  # its own initial values would be thrown away
        model = VisionTransformer(
            img_size=config.image, patch_size=config.patch, in_chans=config.in_chans, num_classes=config.num_classes,
            embed_dim=config.embed_dim, depth=config.depth, num_heads=config.num_heads,
            mlp_ratio=config.hidden / config.embed_dim,
        )  # fmt: skip
    # Copies, which lie as PyTorch likes its arrays to lie.
    state = {name: torch.from_numpy(leaf).clone() for name, leaf in inputs.params.items()}
    model.load_state_dict(state, strict=True, assign=True)
    model.train(workload.training)
    if variant == "shortcut":
        model.blocks[-1] = ClassTokenBlock(model.blocks[-1])
    return torch.compile(model) if variant == "compile" else model


class Torch:
    """A workload in PyTorch; `run` and `outputs` as numpy_vit.bench.workloads.Job's."""

    def __init__(self, workload: Workload, inputs: Inputs, workers: int, variant: str = "eager") -> None:
        torch.set_num_threads(workers)
        self._training = workload.training
        self._images, self._labels = torch.from_numpy(inputs.images).clone(), torch.from_numpy(inputs.labels)
        self._model = build_model(workload, inputs, variant)
        if workload.training:
            parameters = self._model.parameters()
            self._optimizer = torch.optim.AdamW(parameters, lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)

    def run(self) -> float | None:
        """Do the work once; return a step's loss."""
        if not self._training:
            self._predict()
            return None
        _, loss = self._backward()
        self._optimizer.step()
        return loss

    def outputs(self) -> dict[str, Any]:
        """Return logits and, in training, loss, gradients' norm, and the loss after one step."""
        if not self._training:
            return {"logits": self._predict().numpy()}
        logits, loss = self._backward()
        norms = [parameter.grad.norm() for parameter in self._model.parameters()]
        found = {"logits": logits.detach().numpy(), "loss": loss, "gradient_norm": torch.stack(norms).norm().item()}
        self.run()
        return {**found, "loss_after_step": self.run()}

    def _backward(self) -> tuple[Tensor, float]:
        self._optimizer.zero_grad(set_to_none=True)
        logits = self._model(self._images)
        loss = F.cross_entropy(logits, self._labels)
        loss.backward()
        return logits, loss.item()

    def _predict(self) -> Tensor:
        with torch.inference_mode():
            return self._model(self._images)


def main() -> int:
    """Serve on the standard streams."""
    base = measure.resident_bytes()
    options = contender.parser(__doc__)
    options.add_argument("--variant", choices=VARIANTS, default="eager")
    args = options.parse_args()
    workload = contender.chosen(args)
    return protocol.serve(
        lambda: Torch(workload, contender.inputs(args, workload), args.workers, args.variant),
        base,
        *protocol.standard_streams(),
    )


if __name__ == "__main__":
    sys.exit(main())
