"""numpy-vit saliency."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from numpy_vit.cli import seen_image
from numpy_vit.cli.progress import Progress
from numpy_vit.cli.usage import UsageError, positive, usage

_EXAMPLES = """examples:
  numpy-vit saliency cat.png --checkpoint vit_tiny.safetensors --out cat
  numpy-vit saliency cat.png --checkpoint vit_tiny.safetensors --out cat --class tabby --steps 256
  numpy-vit saliency test:3 --checkpoint runs/digits-1 --out three
"""


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "saliency",
        help="which pixels speak for a class",
        description="Draw what each pixel adds to a class's logit: gradient times input, and integrated gradients, "
        "whose sum is the difference of the logits of the image and of an image of zeros (the colour that the "
        "preprocessing maps to zero); and which patches the attention that speaks for the class comes from "
        "(gradient-weighted rollout).",
        epilog=_EXAMPLES,
    )
    parser.add_argument("image", metavar="IMAGE", help=seen_image.IMAGE)
    seen_image.add_model(parser)
    parser.add_argument("--out", required=True, metavar="FOLDER", help="where saliency.png and saliency.npz go")
    parser.add_argument(
        "--class",
        dest="target",
        metavar="CLASS",
        help="a name, a number from 0, or a part of one name alone, in this order: a class that is named 1 is meant by "
        "1 (default: the predicted one)",
    )
    parser.add_argument("--labels", metavar="FILE", help="the names of the classes, one a line")
    parser.add_argument(
        "--steps", type=positive, default=64, metavar="N", help="gradients on the way, up to 1024 (default: 64)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")
    parser.set_defaults(run=run, one_blas_thread=False)


def run(args: argparse.Namespace) -> int:
    """Compute, draw and print."""
    import numpy as np

    from numpy_vit.cli.predict import names_of
    from numpy_vit.views import saliency, saliency_picture

    opened, transform = seen_image.open_for(args)
    names, _ = names_of(opened, args.labels)
    seen = seen_image.read(args.image, opened, transform)
    model, params, config, image = opened.model, opened.params, opened.config, seen.pixels
    logits = saliency.predict(model, params, image[np.newaxis], config)[0]
    target = int(logits.argmax()) if args.target is None else _class(args.target, names)
    folder, progress = seen_image.make_folder(args.out), Progress()
    product = saliency.gradient_times_input(model, params, image, config, target)
    with usage():  # a model without blocks, and steps
        rollout = saliency.weighted_rollout(model, params, image, config, target)
        integrated = saliency.integrated_gradients(
            model, params, image, config, target, args.steps,
            lambda done, of: progress.line(f"integrating: {done} of {of} gradients"),
        )  # fmt: skip
    progress.clear()
    title = f"{names[target]}, logit {integrated.logit:.2f}: {Path(args.image).name}, {opened.path.name}"
    picture = saliency_picture.picture(seen.picture, product, integrated.contributions, rollout, title)
    seen_image.write_picture(folder / "saliency.png", picture)
    seen_image.write_arrays(
        folder / "saliency.npz",
        gradient_times_input=product, integrated_gradients=integrated.contributions, weighted_rollout=rollout,
        image=seen.picture,
    )  # fmt: skip
    found = {
        "image": args.image,
        "checkpoint": str(opened.path),
        "class": target,
        "name": names[target],
        "predicted_class": int(logits.argmax()),
        "predicted": names[int(logits.argmax())],
        "logit": integrated.logit,
        "baseline_logit": integrated.baseline_logit,
        "contributions": float(integrated.contributions.sum()),
        "residual": integrated.residual,
        "steps": args.steps,
        "files": [str(folder / name) for name in ("saliency.png", "saliency.npz")],
    }
    seen_image.on_lines(found, _as_text, args.json)
    return 0


def _class(text: str, names: list[str]) -> int:
    """A class by its name, its number, or a part of its name that no other has; two may bear one name."""
    exact = [i for i, name in enumerate(names) if name == text]
    exact = exact or [i for i, name in enumerate(names) if name.lower() == text.lower()]
    if len(exact) == 1:
        return exact[0]
    if text.isascii() and text.isdigit():
        if int(text) < len(names):
            return int(text)
        raise UsageError(
            f"--class {text}: no class of this name, and the model has {len(names)}, 0 to {len(names) - 1}"
        )
    found = exact or [i for i, name in enumerate(names) if text.lower() in name.lower()]
    if len(found) == 1:
        return found[0]
    several = ", ".join(f"{i} {names[i]}" for i in found[:5]) + (", ..." if len(found) > 5 else "")
    raise UsageError(
        f"--class {text}: " + (f"could be {several}: say more of it, or its number" if found else "no such class")
    )


def _as_text(found: dict[str, Any]) -> str:
    chosen, likeliest = found["class"], found["predicted_class"]
    other = "" if chosen == likeliest else f" (the model says {found['predicted']}, class {likeliest})"
    difference = found["logit"] - found["baseline_logit"]
    return "\n".join(
        [
            f"{found['image']}: {found['name']}, class {chosen}{other}, logit {found['logit']:.4f}, "
            f"of an image of zeros {found['baseline_logit']:.4f}",
            f"integrated gradients: contributions sum to {found['contributions']:.4f}, the difference is "
            f"{difference:.4f}; residual {found['residual']:.1e} after {found['steps']} steps",
            *(f"wrote {file}" for file in found["files"]),
        ]
    )
