"""numpy-vit attention."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy_vit.cli import seen_image
from numpy_vit.cli.progress import Progress
from numpy_vit.cli.usage import UsageError, natural, usage

if TYPE_CHECKING:
    from PIL.Image import Image

    from numpy_vit.data.eval_transform import EvalTransform
    from numpy_vit.training.opened import Opened
    from numpy_vit.tree import Array

_EXAMPLES = """examples:
  numpy-vit attention cat.png --checkpoint vit_tiny.safetensors --out cat
  numpy-vit attention cat.png --checkpoint vit_tiny.safetensors --out cat --mask face.png
  numpy-vit attention test:3 --checkpoint runs/digits-1 --out three
  numpy-vit attention shapes:200 --checkpoint runs/shapes-1 --out shapes
  numpy-vit attention shapes:200 --checkpoint runs/shapes-1 --out shapes --untrained
"""
_SHAPES = 200  # how many, where the command does not say
_AT_ONCE = 8  # images
_SHOWN = 8  # shapes in a picture


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "attention",
        help="where a model looks, for every block and head",
        description="Draw the class token's attention over an image for every block and head, and its rollout through "
        "all blocks; for a model that pools its patches, by their mean or by attention, and so reads no class token, "
        "the attention that each patch receives from the patches. The weights of the pool itself are not drawn, nor "
        "is the distillation token's row. With a mask, or on generated shapes, whose masks are known: the share of the "
        "attention that lies on the object, how many times its share of the area that is, and in brackets the "
        "difference share - area; over several images with ±, that difference's standard error.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("image", metavar="IMAGE", help=f"{seen_image.IMAGE}, or shapes[:N], N (200) generated images")
    seen_image.add_model(parser)
    parser.add_argument("--out", required=True, metavar="FOLDER", help="where the pictures and attention.npz go")
    parser.add_argument(
        "--mask",
        metavar="FILE",
        help="an image, white on the object, as large as the file IMAGE; over test:N as large as the model's images",
    )
    parser.add_argument("--untrained", action="store_true", help="draw the model's weights anew: what chance gives")
    parser.add_argument("--seed", type=natural, default=0, help="of --untrained")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    parser.set_defaults(run=run, one_blas_thread=False)


@dataclass(frozen=True)
class _Seen:
    """Images as the model takes them (B, C, Y, X), their names, and masks (B, Y, X) in 0 … 1 where they are known."""

    images: Array
    names: list[str]
    masks: Array | None


def run(args: argparse.Namespace) -> int:
    """Draw, measure and print."""
    import numpy as np

    shapes = re.fullmatch(r"shapes(?::([1-9]\d*))?", args.image)
    if shapes and args.mask:
        raise UsageError("shapes bring their own masks: leave --mask out")
    opened, transform = seen_image.open_for(args)
    if args.untrained:
        opened = replace(opened, params=opened.model.init(opened.config, np.random.default_rng(args.seed)))
    seen = _shapes(opened, transform, int(shapes[1] or _SHAPES)) if shapes else _named(args, opened, transform)
    folder = seen_image.make_folder(args.out)
    maps, rollouts, first = _look(opened, seen.images)
    untrained = ", untrained" if args.untrained else ""
    title = f"{_whose(opened)}: {Path(args.image).name}, {opened.path.name}{untrained}"
    shown = _shown(seen.images[:_SHOWN], transform)
    pictures = _pictures(shown, maps, rollouts, title) | (
        _gallery(shown, seen, maps, rollouts, title) if shapes else {}
    )
    for name, picture in pictures.items():
        seen_image.write_picture(folder / name, picture)
    arrays = {"weights": first, "maps": maps[0], "rollout": rollouts[0], "image": shown[0]}
    seen_image.write_arrays(folder / "attention.npz", **arrays)
    found: dict[str, Any] = {"image": args.image, "checkpoint": str(opened.path), "images": len(seen.images)}
    found |= {"shown": _whose(opened), "untrained": args.untrained}
    found["files"] = [str(folder / name) for name in (*pictures, "attention.npz")]
    if seen.masks is not None:
        found |= _shares(opened, maps, rollouts, seen.masks)
    seen_image.on_lines(found, _as_text, args.json)
    return 0


def _whose(opened: Opened) -> str:
    from numpy_vit.views import attention_maps

    if attention_maps.reader(opened.config) == "class token":
        return "the class token's attention"
    pool = ", without the pool's own" if opened.config.global_pool == "map" else ""
    return f"the attention that patches receive from each other{pool}"


def _shapes(opened: Opened, transform: EvalTransform, count: int) -> _Seen:
    """Generated images that no run was trained on: drawn in the model's size, so that nothing is cropped."""
    import numpy as np
    from PIL import Image

    from numpy_vit.data.image_files import MODES
    from numpy_vit.data.shapes import CLASS_NAMES, TEST, make
    from numpy_vit.data.transforms import normalise

    with usage():
        made = [make(TEST + i, opened.config.image) for i in range(count)]
    mode = MODES[opened.config.in_chans]
    pictures = [np.asarray(Image.fromarray(image.transpose(1, 2, 0)).convert(mode)) for image, _, _ in made]
    pixels = np.stack([picture.reshape(*opened.config.image, -1).transpose(2, 0, 1) for picture in pictures])
    masks = np.stack([mask for _, _, mask in made]).astype(np.float64)
    return _Seen(normalise(pixels, transform.mean, transform.std), [CLASS_NAMES[label] for _, label, _ in made], masks)


def _named(args: argparse.Namespace, opened: Opened, transform: EvalTransform) -> _Seen:
    """The image that was named, and the mask that was given with it, cut to what the model sees of the image."""
    import numpy as np

    images = seen_image.read(args.image, opened, transform).pixels[np.newaxis]
    if args.mask is None:
        return _Seen(images, [args.image], None)
    mask = seen_image.read_mask(args.mask, args.image, opened, transform)
    return _Seen(images, [args.image], mask[np.newaxis])


def _look(opened: Opened, images: Array) -> tuple[Array, Array, Array]:
    """The maps (B, L, H, gy, gx) and rollouts (B, gy, gx) of all images; the weights (L, H, R, R) of the first."""
    import numpy as np

    from numpy_vit.views import attention_maps

    progress, maps, rollouts = Progress(), [], []
    first: list[Array] = []
    for start in range(0, len(images), _AT_ONCE):
        part = images[start : start + _AT_ONCE]
        with usage():
            weights = attention_maps.weights(opened.model, opened.params, part, opened.config)  # (B, L, H, R, R)
        first = first or [weights[0].copy()]
        maps.append(attention_maps.maps(weights, opened.config))
        rollouts.append(attention_maps.rollout(weights, opened.config))
        progress.line(f"attention of {start + len(weights):,} of {len(images):,} images")
    progress.clear()
    return np.concatenate(maps), np.concatenate(rollouts), first[0]


def _shown(images: Array, transform: EvalTransform) -> list[Array]:
    from numpy_vit.views import heat_maps

    return [heat_maps.shown(image, transform.mean, transform.std) for image in images]


def _pictures(shown: list[Array], maps: Array, rollouts: Array, title: str) -> dict[str, Image]:
    """The pictures of the first image, by the names of their files."""
    from numpy_vit.views import attention_picture

    return {
        "attention.png": attention_picture.heads_over_image(maps[0], shown[0], title),
        "attention_raw.png": attention_picture.heads_alone(maps[0], shown[0].shape[:2], title),
        "rollout.png": attention_picture.single(rollouts[0], shown[0], "attention rollout", title),
    }


def _gallery(shown: list[Array], seen: _Seen, maps: Array, rollouts: Array, title: str) -> dict[str, Image]:
    """The picture of the first few images with the last block's attention and the rollout."""
    from numpy_vit.views import attention_picture

    several = slice(0, len(shown))
    rows = {"last block": list(maps[several, -1].mean(axis=1)), "rollout": list(rollouts[several])}
    return {"shapes.png": attention_picture.gallery(shown, rows, seen.names[several], title)}


def _shares(opened: Opened, maps: Array, rollouts: Array, masks: Array) -> dict[str, Any]:
    """How much of each map lies on the object, on average over the images.

    The errors are those of the mean of share - area: an image's share varies with the size of its object, and that
    part of the spread says nothing of where the model looks.
    """
    from numpy_vit.views import attention_maps

    coverage = attention_maps.coverage(masks, opened.config)
    by_head = attention_maps.share_on(maps, coverage)  # (B, L, H)
    area = coverage.mean(axis=(1, 2))
    rollout = attention_maps.share_on(rollouts, coverage)
    return {
        "area": float(area.mean()),
        "rollout": float(rollout.mean()),
        "rollout_error": _error(rollout - area),
        "blocks": [
            {
                "share": float(by_head[:, block].mean()),
                "error": _error(by_head[:, block].mean(axis=1) - area),
                "heads": by_head[:, block].mean(axis=0).tolist(),
            }
            for block in range(by_head.shape[1])
        ],
    }


def _error(values: Array) -> float | None:
    """The standard error of the mean; None for one image."""
    return float(values.std(ddof=1) / len(values) ** 0.5) if len(values) > 1 else None


def _as_text(found: dict[str, Any]) -> str:
    lines = [f"{found['image']}: {found['shown']}{', untrained' if found['untrained'] else ''}"]
    if "area" in found:
        one = found["images"] == 1
        of = "the object is" if one else f"the objects of {found['images']:,} images are"
        lines += [
            f"{of} {found['area']:.1%} of the area; the attention on {'it' if one else 'them'}:",
            f"  rollout  {_share(found['rollout'], found['rollout_error'], found['area'])}",
        ]
        for i, block in enumerate(found["blocks"]):
            heads = " ".join(f"{share:.1%}" for share in block["heads"])
            lines.append(f"  block {i:<2} {_share(block['share'], block['error'], found['area'])}   heads {heads}")
    return "\n".join([*lines, *(f"wrote {file}" for file in found["files"])])


def _share(share: float, error: float | None, area: float) -> str:
    spread = "" if error is None else f" ± {error:.1%}"
    times = f", {share / area:.2f} times the area" if area else ""
    return f"{share:.1%}{times} ({round(share - area, 3) + 0.0:+.1%}{spread})"
