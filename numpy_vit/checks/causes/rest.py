"""What ports do differently about the MLP, the head, and layers that they leave out."""

from __future__ import annotations

import re
from collections.abc import Iterator

from numpy_vit.checks.causes.alternative import Alternative
from numpy_vit.checks.edits import matching, rearranged, without
from numpy_vit.checks.port import UNUSUAL, Change, Flat, Port
from numpy_vit.models.vit_config import ACTIVATIONS

_FORMS = {"gelu": "the exact GELU", "gelu_tanh": "GELU's tanh form", "quick_gelu": "QuickGELU", "relu": "ReLU"}


def activations(port: Port) -> Iterator[Alternative]:
    """Yield the other forms of GELU, and what is none."""
    now = getattr(port.config, "unusual_act", None) or port.config.act
    if port.config.swiglu:
        return
    for act in ACTIVATIONS:
        if act != now:
            change = Change(config={"act": act, "unusual_act": None})
            yield Alternative(f"activation {act}", f"act={act!r}", f"the reference uses {_FORMS.get(act, act)}", change)
    for act in UNUSUAL:
        if act != now:
            change = Change(config={"unusual_act": act})
            name = "has no activation in its MLP" if act == "none" else f"uses {act} instead of GELU"
            yield Alternative(f"activation {act}", f"act={act!r}", f"the reference {name}", change)


def pooling(port: Port) -> Iterator[Alternative]:
    """Yield other ways from the tokens to one vector, the norm staying where it is."""
    config, after = port.config, port.config.norm_after_pool
    if config.global_pool not in ("token", "avg"):
        return
    ways = {
        "pooling token": ("token", False, "its class token"),
        "pooling avg": ("avg", False, "the mean of the patches"),
        "pooling avg of all tokens": ("avg", True, "the mean of all tokens, the class token's included"),
    }
    for name, (pool, everything, says) in ways.items():
        here = (pool, everything) == (config.global_pool, config.pool_include_prefix)
        possible = config.class_token if pool == "token" else config.num_prefix_tokens or not everything
        if possible and not here:
            fields = {"global_pool": pool, "pool_include_prefix": everything, "fc_norm": after}
            applied = f"global_pool={pool!r}" + (" over all tokens" if everything else "")
            yield Alternative(name, applied, f"the reference pools by {says}", Change(config=fields))


def left_out(port: Port, block: str) -> Iterator[Alternative]:
    """Yield biases, tokens and layer scales that a port lacks; one of each kind for all blocks that match."""
    kinds = {re.sub(r"^blocks\.\d+\.", "", key) for key in matching(rf"blocks\.({block})\..*", port.params)}
    names = [(kind, rf"blocks\.({block})\.{re.escape(kind)}") for kind in sorted(kinds)]
    if block == r"\d+":
        names += [(key, re.escape(key)) for key in sorted(port.params) if not key.startswith("blocks.")]
    for kind, keys in names:
        if kind.endswith((".bias", "cls_token", "reg_token")):
            says = f"the reference has no {kind}, or never adds it"
            yield Alternative(f"{kind} missing", f"{kind} left out", says, without(keys))
        if kind.endswith(".gamma"):
            says = f"the reference does not apply the layer scale {kind}"
            yield Alternative(f"{kind} missing", f"{kind} left out", says, without(keys, 1.0))
    bias = rf"blocks\.({block})\.attn\.qkv\.bias"
    if matching(bias, port.params):
        says = "the reference has no bias for queries and keys, or none for values"
        for name, third in (("q", 0), ("v", 2)):
            yield Alternative(f"{name} bias missing", f"the bias of {name} left out", says, _third(bias, third))
    head = port.params.get("head.weight")
    if head is not None and head.shape[0] == head.shape[1]:
        says = "the reference's head.weight is transposed"
        change = rearranged(r"head\.weight", lambda leaf: leaf.T)
        yield Alternative("head transposed", "head.weight transposed", says, change)


def _third(keys: str, third: int) -> Change:
    def cut(flat: Flat) -> Flat:
        flat = dict(flat)
        for key in matching(keys, flat):
            leaf = flat[key].copy()
            leaf.reshape(3, -1)[third] = 0
            flat[key] = leaf
        return flat

    return Change(params=cut, gradients=cut)
