"""numpy-vit positions."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from numpy_vit.cli import seen_image
from numpy_vit.cli.usage import usage

_EXAMPLES = """examples:
  numpy-vit positions runs/cifar10-1
  numpy-vit positions vit_tiny.safetensors --out positions.png
"""


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "positions",
        help="how alike a model's position rows are",
        description="Draw the cosine similarity of each patch's position row with all others: a map for each patch. "
        "A model that has learned where its patches lie is most alike nearby, and along rows and columns.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("checkpoint", metavar="FILE", help="any checkpoint, or the folder of a run")
    parser.add_argument("--out", default="positions.png", metavar="FILE", help="the picture (default: positions.png)")
    parser.set_defaults(run=run, one_blas_thread=False)


def run(args: argparse.Namespace) -> int:
    """Draw and print."""
    from numpy_vit.views import position_maps

    opened = seen_image.open_for_weights(args.checkpoint)
    with usage():
        rows = position_maps.rows(opened.params, opened.config)
    seen_image.demand_finite(rows, "the positions", opened)
    config = opened.config
    found = position_maps.similarities(rows, config.grid)
    kind = "learned" if config.pos_embed == "learned" else config.pos_embed
    title = f"positions alike: {opened.path.name}, {config.grid[0]}x{config.grid[1]} patches, {kind}"
    seen_image.write_picture(Path(args.out), position_maps.picture(found, title))
    print(
        f"{kind} positions of {config.grid[0]}x{config.grid[1]} patches; "
        f"similarity falls with distance: correlation {position_maps.nearness(found):+.2f}\nwrote {args.out}"
    )
    return 0
