"""numpy-vit compare."""

from __future__ import annotations

import argparse
import ast
import json
from typing import TYPE_CHECKING, Any

from numpy_vit.cli.usage import UsageError, natural, positive, usage

if TYPE_CHECKING:
    from numpy_vit.checks.input_causes import Preprocessing
    from numpy_vit.checks.port import Port
    from numpy_vit.checks.reference import Reference

_EXAMPLES = """examples:
  numpy-vit compare model.safetensors --reference reference.safetensors    a file of scripts/dump_reference.py, no torch
  numpy-vit compare model.safetensors --torch timm:vit_tiny_patch16_224    a live model with these weights
  numpy-vit compare --torch mymodels:make_vit --dtype float64              a live model with its own
  numpy-vit compare ours.pth --reference ref.npz --set num_heads=6 --set norm_eps=1e-5
  numpy-vit compare --weights hf/model.safetensors timm.pth                two checkpoints, tensor by tensor
"""


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "compare",
        help="find the first tensor in which two implementations differ, and why",
        description="Compare a checkpoint, run here, with what another implementation computed: every intermediate, "
        "the logits and every gradient, up to the rounding that the format explains. Where they differ, the first "
        "tensor is named, and the cause found by trying: eps, GELU, qkv order, patch order, positions, norms, pooling, "
        "heads and more. Exit status 0 if both are the same, 1 if they differ, 2 if they could not be compared.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("checkpoint", nargs="?", metavar="CHECKPOINT", help="of any layout, or the folder of a run")
    way = parser.add_mutually_exclusive_group(required=True)
    way.add_argument("--reference", metavar="FILE", help="what the other computed; see numpy_vit/checks/reference.py")
    way.add_argument(
        "--torch",
        metavar="MODEL",
        help="run it live: timm:NAME or torchvision:NAME with the checkpoint's weights, or its own random ones "
        "without a CHECKPOINT; hf:FOLDER or module:factory with their own",
    )
    way.add_argument("--weights", nargs=2, metavar=("A", "B"), help="compare two checkpoints without running them")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        help="a field of Config that the checkpoint does not say",
    )
    parser.add_argument("--dtype", default="float32", metavar="DTYPE", help="of --torch (default: float32)")
    parser.add_argument("--batch", type=positive, default=2, metavar="N", help="images for --torch (default: 2)")
    parser.add_argument("--seed", type=natural, default=0, help="of the images for --torch (default: 0)")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")
    parser.set_defaults(run=run, one_blas_thread=False)


def run(args: argparse.Namespace) -> int:
    """Compare and print; 0 if both are the same, 1 if not."""
    if args.weights:
        return _weights(args)
    from numpy_vit.checks.compare import compare
    from numpy_vit.checks.opening import gradients_of

    with usage():
        port, reference = _live(args) if args.torch else _stored(args)
        preprocessing = _preprocessing(args, reference)
        result = compare(port, reference, gradients_of(reference, port), preprocessing)
    if args.json:
        about = {"checkpoint": args.checkpoint, "reference": args.reference or args.torch, "source": reference.source}
        print(json.dumps({**result.to_json(), **about}))
    else:
        print(result)
    return 0 if result.same else 1


def _fields(args: argparse.Namespace) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for text in args.set:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"--set {text!r}: write FIELD=VALUE, such as num_heads=6 or act=gelu_tanh")
        try:
            fields[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            fields[name] = value
    return fields


def _stored(args: argparse.Namespace) -> tuple[Port, Reference]:
    """The checkpoint, and a reference from its file."""
    from numpy_vit.checks.opening import open_port
    from numpy_vit.checks.reference import read_reference
    from numpy_vit.training.opened import checkpoint_path

    if not args.checkpoint:
        raise UsageError("--reference needs a CHECKPOINT to compare it with")
    reference = read_reference(args.reference)
    height, width = reference.images.shape[2:]
    return open_port(checkpoint_path(args.checkpoint), (height, width), **_fields(args)), reference


def _live(args: argparse.Namespace) -> tuple[Port, Reference]:
    """The checkpoint, or the live model's own weights, and what the live model computes."""
    import numpy as np

    from numpy_vit.checks import live
    from numpy_vit.checks.opening import open_port, packed_like, port_of_state
    from numpy_vit.training.opened import checkpoint_path

    fields = _fields(args)
    if args.checkpoint:
        port = open_port(checkpoint_path(args.checkpoint), **fields)
        model = live.build(args.torch, **live.sizes(args.torch, port.config.image, port.config.num_classes))
        if not live.has_weights(args.torch):
            live.load_state(model, packed_like(live.state(model), port), args.checkpoint)
    else:
        model = live.build(args.torch)
        port = port_of_state(live.state(model), **fields)
    rng = np.random.default_rng(args.seed)
    images = rng.standard_normal((args.batch, port.config.in_chans, *port.config.image), np.float32)
    upstream = live.random_upstream(model, images, rng)
    return port, live.trace(model, images, upstream, args.dtype, source=args.torch)


def _preprocessing(args: argparse.Namespace, reference: Reference) -> Preprocessing | None:
    """What the checkpoint's pictures should go through; None where the reference has none."""
    if not args.checkpoint or reference.raw is None:
        return None
    import numpy as np

    from numpy_vit.checks.input_causes import Preprocessing, pictures_of
    from numpy_vit.data import published
    from numpy_vit.data.eval_transform import EvalTransform
    from numpy_vit.training.opened import open_model

    opened = open_model(args.checkpoint, **_fields(args))
    size = (reference.images.shape[2], reference.images.shape[3])
    if "preprocessing" in opened.extra:
        transform = EvalTransform.of_training(opened.extra["preprocessing"])
    elif beside := published.beside(opened.path, size):
        transform = beside[0]
    else:
        transform = published.named(opened.family, size)
    pictures = pictures_of(reference) or _pictures(transform, np.asarray(reference.raw))
    return Preprocessing(transform.mean, transform.std, pictures)


def _pictures(transform: Any, raw: Any) -> dict[str, Any]:
    """The raw pictures resized and cropped as they should be, then as others do."""
    from dataclasses import replace

    import numpy as np
    from PIL import Image

    ways = {transform.resample: transform}
    ways |= {name: replace(transform, resample=name) for name in ("bicubic", "bilinear", "nearest")}
    whole = replace(transform, squash=True, resize=transform.size)
    ways |= {f"{name}, squashed": replace(whole, resample=name) for name in ("bicubic", "bilinear")}
    return {
        name: np.stack([np.moveaxis(np.asarray(way.crop(Image.fromarray(image))), -1, 0) for image in raw]).astype(
            float
        )
        for name, way in ways.items()
    }


def _weights(args: argparse.Namespace) -> int:
    from numpy_vit.checks.opening import open_port
    from numpy_vit.checks.weights import compare_weights
    from numpy_vit.training.opened import checkpoint_path

    if args.checkpoint:
        raise UsageError("--weights takes its two checkpoints itself: leave out the first argument")
    fields = _fields(args)
    with usage():
        first, second = (open_port(checkpoint_path(name), **fields) for name in args.weights)
    result = compare_weights(first, second.params)
    print(json.dumps({**result.to_json(), "files": args.weights}) if args.json else result)
    return 0 if result.same else 1
