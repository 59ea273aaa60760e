"""numpy-vit inspect."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from numpy_vit.cli.usage import UsageError, add_workers, cores, positive, usage

if TYPE_CHECKING:
    from pathlib import Path

    from numpy_vit.checks.findings import Finding

_EXAMPLES = """examples:
  numpy-vit inspect vit_base_patch16_224                    shapes, parameters, FLOPs and memory of a variant
  numpy-vit inspect vit_huge_patch14_224 --image-size 518   at another image size
  numpy-vit inspect vit_small_patch16_224 --batch-size 8    also what a training step of 8 images takes here
  numpy-vit inspect model.pth --json                        a checkpoint: also what is assumed, and its health
"""


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "inspect",
        help="shapes, costs and health of a checkpoint or a variant",
        description="Show a model's tensors, the shapes of its intermediates, its parameters and multiply-adds a part, "
        "its activation memory, and what a batch takes in memory and time, estimated for this machine. For a file, "
        "first its family, what is assumed about it, and a health check, which also tells the mistakes of porting that "
        "shapes show. Exit status 1 if the health check finds something wrong.",
        epilog=_EXAMPLES,
    )
    parser.add_argument(
        "subject", metavar="FILE|VARIANT", help="a checkpoint, the folder of a run, or a variant's name"
    )
    parser.add_argument("--image-size", type=_size, metavar="Y[xX]", help="of the images, as in 384 or 224x448")
    parser.add_argument("--heads", type=positive, metavar="N", help="attention heads, where the file does not say")
    parser.add_argument("--batch-size", type=positive, default=64, metavar="N", help="of the estimate (default: 64)")
    add_workers(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    parser.set_defaults(run=run, one_blas_thread=False)


def run(args: argparse.Namespace) -> int:
    """Look and print; 1 if something is wrong with a file."""
    from numpy_vit.training.opened import checkpoint_path

    path = checkpoint_path(args.subject)
    if not path.is_file():
        return _variant(args)
    return _file(args, path)


def _variant(args: argparse.Namespace) -> int:
    from numpy_vit.cli import inspect_text
    from numpy_vit.models import variant_names, vit_config
    from numpy_vit.views.shapes import parameter_shapes

    chosen = {"image_size": args.image_size, "num_heads": args.heads}
    try:
        config = vit_config(args.subject, **{field: value for field, value in chosen.items() if value})
    except ValueError as error:
        if not str(error).startswith("unknown variant"):
            raise UsageError(str(error)) from error
        near = get_close_matches(args.subject, variant_names(), 1, 0.0)[0]
        text = f"{args.subject!r} is neither a file nor a variant; the variant of the nearest name is {near}"
        raise UsageError(text) from error
    tensors = {name: (shape, "float32") for name, shape in parameter_shapes(config).items()}
    if args.json:
        print(json.dumps({"variant": args.subject, **inspect_text.as_json(tensors, config, _estimate(args, config))}))
    else:
        print(f"{args.subject}\n\n{inspect_text.as_text(tensors, config, _estimate(args, config))}")
    return 0


def _file(args: argparse.Namespace, path: Path) -> int:
    from numpy_vit.checkpoints import read_tensors
    from numpy_vit.checkpoints.load import Loaded, load
    from numpy_vit.checks.findings import Finding
    from numpy_vit.checks.health import health
    from numpy_vit.cli import inspect_text
    from numpy_vit.errors import CheckpointError
    from numpy_vit.views.table import printable

    raw = read_tensors(path, mmap=True)
    loaded: Loaded | None = None
    failure: list[Finding] = []
    try:
        with usage():
            loaded = load(path, **({"num_heads": args.heads} if args.heads else {}))
    except (CheckpointError, UsageError) as error:
        failure = [Finding("wrong", "", f"it cannot be loaded as a model: {error}")]
    config = loaded.config if loaded else None
    image_size = args.image_size or (config.image if config else None)
    findings = failure + health(raw, config.num_heads if config else args.heads, image_size)
    if config and args.image_size:
        with usage():
            config = replace(config, image_size=args.image_size)
    tensors = {name: (tensor.shape, str(tensor.dtype)) for name, tensor in raw.items()}
    if args.json:
        about = {
            "file": str(path),
            "family": loaded.report.family if loaded else None,
            "report": loaded.report.to_json() if loaded else None,
            "health": [finding.to_json() for finding in findings],
        }
        print(json.dumps({**about, **inspect_text.as_json(tensors, config, _estimate(args, config))}))
    else:
        lines = str(loaded.report).splitlines() if loaded else [str(path)]
        text = inspect_text.as_text(tensors, config, _estimate(args, config))
        print("\n".join(map(printable, lines)), _health(findings), text, sep="\n\n")
    return int(any(finding.level == "wrong" for finding in findings))


def _estimate(args: argparse.Namespace, config: Any) -> dict[str, Any] | None:
    from numpy_vit.cli.estimates import estimate

    return estimate(config, args.batch_size, args.workers or cores()) if config else None


def _health(findings: list[Finding]) -> str:
    from numpy_vit.views.table import printable

    if not findings:
        return "health: nothing wrong was found"
    return "health:\n" + "\n".join(f"  {printable(str(finding))}" for finding in findings)


def _size(text: str) -> tuple[int, int]:
    """Parse 384 or 224x448, height first, as an argparse type."""
    height, _, width = text.partition("x")
    return positive(height), positive(width or height)
