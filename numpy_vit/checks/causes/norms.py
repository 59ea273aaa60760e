"""What ports do differently about LayerNorm."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from numpy_vit.checks.causes.alternative import Alternative
from numpy_vit.checks.edits import dropping, matching, scaled
from numpy_vit.checks.port import Change, Flat, Port
from numpy_vit.layers import layernorm
from numpy_vit.tree import Array

EPS = (1e-6, 1e-5, 1e-12, 1e-7, 1e-3)
_ALL = r"(blocks\.\d+\.norm\d|norm|fc_norm|norm_pre|patch_embed\.norm)\.weight"


def norms(port: Port) -> Iterator[Alternative]:
    """Yield other eps, the unbiased variance, and last norms that are missing, doubled or elsewhere."""
    yield from _eps(port)
    D, eps = port.config.embed_dim, port.config.norm_eps
    shrink = scaled(_ALL, lambda leaf: np.full(leaf.shape, np.sqrt((D - 1) / D), leaf.dtype))
    smaller = {"norm_eps": eps * (D - 1) / D, "block_eps": None}
    yield Alternative(
        "unbiased variance", "the variance divided by D - 1",
        "the reference's norm uses the unbiased variance (as torch's x.var() does), where LayerNorm divides by D",
        Change(config=smaller, params=shrink.params, gradients=shrink.gradients),
    )  # fmt: skip
    other = "pre_norm" if port.config.block == "post_norm" else "post_norm"
    yield Alternative(
        f"{other} blocks", f"block={other!r}", f"the reference's blocks are {other.replace('_', '-')}: norms "
        f"{'before attention and MLP' if other == 'pre_norm' else 'after the sums'}", Change(config={"block": other}),
    )  # fmt: skip
    yield from _last(port)


def _eps(port: Port) -> Iterator[Alternative]:
    now = port.config.norm_eps
    inside = getattr(port.config, "block_eps", None) or now
    for eps in EPS:
        if (eps, eps) != (inside, now):
            yield _eps_of("", {"norm_eps": eps, "block_eps": None}, eps)
        if eps != inside:
            yield _eps_of(" in blocks", {"norm_eps": now, "block_eps": eps}, eps)
        if eps != now:
            yield _eps_of(" outside blocks", {"norm_eps": eps, "block_eps": inside}, eps)


def _eps_of(where: str, config: dict[str, float | None], eps: float) -> Alternative:
    says = f"the reference's LayerNorm{where} has eps {eps:g}"
    return Alternative(f"eps {eps:g}{where}", f"eps={eps:g}{where}", says, Change(config=config))


def _last(port: Port) -> Iterator[Alternative]:
    """The norm after the blocks: on all tokens before pooling ("norm"), or on what was pooled ("fc_norm")."""
    here = next((name for name in ("norm", "fc_norm") if f"{name}.weight" in port.params), None)
    if here is None:
        return
    other = "fc_norm" if here == "norm" else "norm"
    keys = rf"{here}\.(weight|bias)"
    yield Alternative(
        "final norm missing", "no final norm", "the reference does not apply the norm after the blocks",
        Change(params=dropping(keys), gradients=dropping(keys)),
    )  # fmt: skip

    def doubled(flat: Flat) -> Flat:
        return flat | _named(flat, here, other)

    yield Alternative(
        "final norm doubled", "the final norm twice", "the reference applies the norm after the blocks twice",
        Change(params=doubled, output=_twice(port, here), gradients=_sum(here, other)),
    )  # fmt: skip
    place = "after pooling" if here == "norm" else "before pooling"

    def moved(flat: Flat) -> Flat:
        return dropping(keys)(flat) | _named(flat, here, other)

    yield Alternative(
        f"final norm {place}", f"the final norm {place}", f"the reference applies the final norm {place}, not "
        f"{'before' if here == 'norm' else 'after'} it",
        Change(params=moved, gradients=lambda flat: dropping(rf"{other}\..*")(flat) | _named(flat, other, here)),
    )  # fmt: skip


def _named(flat: Flat, old: str, new: str) -> Flat:
    return {key.replace(old, new, 1): flat[key] for key in matching(rf"{old}\.(weight|bias)", flat)}


def _sum(here: str, other: str) -> Callable[[Flat], Flat]:
    def gradients(flat: Flat) -> Flat:
        again = _named(flat, other, here)
        return {key: leaf + again.get(key, 0) for key, leaf in flat.items() if not key.startswith(f"{other}.")}

    return gradients


def _twice(port: Port, here: str) -> Callable[[str, Array], Array]:
    """A module that is called twice shows its second output."""
    eps = port.config.norm_eps

    def output(name: str, value: Array) -> Array:
        if name != "norm" or here != "norm":
            return value
        affine = {part: port.params[f"norm.{part}"].astype(value.dtype) for part in ("weight", "bias")}
        return layernorm.forward(affine, value, eps)[0]

    return output
