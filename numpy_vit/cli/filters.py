"""numpy-vit filters."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from numpy_vit.cli import seen_image
from numpy_vit.cli.usage import positive

_EXAMPLES = """examples:
  numpy-vit filters vit_tiny.safetensors
  numpy-vit filters runs/cifar10-1 --count 14 --out filters.png
"""


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "filters",
        help="what a model's patch projection looks for",
        description="Draw the first principal components of the patch projection's filters, in the images' colours. "
        "A trained projection has smooth ones, like waves and edges; an untrained one has noise.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("checkpoint", metavar="FILE", help="any checkpoint, or the folder of a run")
    parser.add_argument("--count", type=positive, default=28, metavar="N", help="components (default: 28)")
    parser.add_argument("--out", default="filters.png", metavar="FILE", help="the picture (default: filters.png)")
    parser.set_defaults(run=run, one_blas_thread=False)


def run(args: argparse.Namespace) -> int:
    """Draw and print."""
    from numpy_vit.views import patch_filters

    opened = seen_image.open_for_weights(args.checkpoint)
    weight = opened.params["patch_embed"]["proj"]["weight"]
    seen_image.demand_finite(weight, "the filters", opened)
    components, shares = patch_filters.components(weight, args.count)
    (py, px), D = opened.config.patch, opened.config.embed_dim
    title = f"filters of {py}x{px} pixels: {opened.path.name}"
    seen_image.write_picture(Path(args.out), patch_filters.picture(components, shares, title))
    print(
        f"{len(components)} principal components of {D} filters of {py}x{px} pixels explain {shares.sum():.1%} of "
        f"their variance, the first alone {shares[0]:.1%}\nwrote {args.out}"
    )
    return 0
