"""numpy-vit convert."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from numpy_vit.cli.usage import UsageError, positive, usage

_EXAMPLES = """examples:
  numpy-vit convert vit_b16.npz vit_b16.safetensors                  Google's file for timm
  numpy-vit convert model.pth out.pt --to torchvision --num-heads 16
  numpy-vit convert model.safetensors big.safetensors --image-size 384 384
  numpy-vit convert mine.pt out.safetensors --map names.txt          a naming that only you have

A map file has a line for each of their keys:
  layers.{i}.ln_a.*                                  -> blocks.{i}.norm1.*
  layers.{i}.q.* + layers.{i}.k.* + layers.{i}.v.*   -> blocks.{i}.attn.qkv.*
  embed.weight                                       -> patch_embed.proj.weight channel_last
"""


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "convert",
        help="a checkpoint of any layout, for timm, Hugging Face or torchvision",
        description="Write a checkpoint in another library's layout: .safetensors, or a .pt that torch.load opens.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("input", metavar="IN", help="torch, safetensors or npz file of any known layout")
    parser.add_argument("output", metavar="OUT", help="NAME.safetensors, or NAME.pt, .pth or .bin for torch's format")
    parser.add_argument("--to", choices=("timm", "hf", "torchvision"), default="timm", help="default: timm")
    parser.add_argument("--map", metavar="FILE", help="a table 'their key -> our key [transform]'")
    parser.add_argument("--image-size", type=positive, nargs=2, metavar=("Y", "X"), help="resize the position table")
    parser.add_argument(
        "--patch-size", type=positive, nargs=2, metavar=("Y", "X"), help="resample the patch projection"
    )
    parser.add_argument("--grid", type=positive, nargs=2, metavar=("ROWS", "COLS"), help="of a table that is no square")
    parser.add_argument("--resizing", metavar="RULE", help="how positions are resized (default: as the family does)")
    parser.add_argument("--num-heads", type=positive, metavar="H", help="where D / 64 is wrong")
    parser.add_argument("--norm-eps", type=float, metavar="EPS", help="LayerNorm's eps")
    parser.add_argument("--act", choices=("gelu", "gelu_tanh", "quick_gelu", "relu"), help="the activation")
    parser.add_argument("--json", action="store_true", help="the report as one JSON object")
    parser.set_defaults(run=run, one_blas_thread=False)


def run(args: argparse.Namespace) -> int:
    """Convert and say how the file was understood."""
    from numpy_vit.checkpoints import maps
    from numpy_vit.checkpoints.convert import SUFFIXES, save_as
    from numpy_vit.checkpoints.load import load

    if Path(args.output).suffix not in SUFFIXES:
        raise UsageError(f"{args.output}: choose a suffix of {', '.join(SUFFIXES)}: it says which format is written")
    overrides = {name: getattr(args, name) for name in ("num_heads", "norm_eps", "act") if getattr(args, name)}
    for name in ("image_size", "patch_size"):
        if getattr(args, name):
            overrides[name] = tuple(getattr(args, name))
    with usage():
        found = load(
            args.input,
            mapping=maps.read(args.map) if args.map else None,
            grid=tuple(args.grid) if args.grid else None,
            resizing=args.resizing,
            **overrides,
        )
        # the family that the weights were trained in decides how pictures are prepared, whatever their names are now
        extra = {"prepared_as": found.report.family, **found.extra}
        layout = save_as(args.output, found.config, found.params, args.to, extra)
    if args.json:
        print(json.dumps({"output": args.output, "layout": layout.name, **found.report.to_json()}))
    else:
        config, family = found.config, extra["prepared_as"]
        print(found.report)
        print(
            f"{args.output}: layout {layout.name}; its model needs {config.num_heads} heads, "
            f"eps {config.norm_eps:g}, activation {config.act}"
        )
        if not args.output.endswith(".safetensors"):
            print(f"torch's format has no room for that: say it to whoever reads it, --preprocessing {family} included")
    return 0
