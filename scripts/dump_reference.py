"""Write a reference file from a live PyTorch model, for `numpy-vit compare CHECKPOINT --reference FILE`.

    python scripts/dump_reference.py timm:vit_tiny_patch16_224 --weights model.safetensors --out reference.safetensors
    python scripts/dump_reference.py mymodels:make_vit --dtype float64 --images 3 --out reference.npz

A factory takes no arguments and returns the model with its weights.  Needs torch, and timm, torchvision or
transformers for their models.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from numpy_vit.checks import live
from numpy_vit.checks.opening import open_port, packed_like
from numpy_vit.checks.precision import PRECISIONS
from numpy_vit.checks.reference import write_reference
from numpy_vit.errors import NumpyVitError


def main() -> None:
    """Build, run, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="timm:NAME, torchvision:NAME, hf:FOLDER or module:factory")
    parser.add_argument("--weights", metavar="FILE", help="a checkpoint for timm: and torchvision: models")
    parser.add_argument("--out", default="reference.safetensors", metavar="FILE", help=".safetensors or .npz")
    parser.add_argument("--dtype", default="float32", choices=list(PRECISIONS))
    parser.add_argument("--images", type=int, default=2, metavar="N", help="how many random images (default: 2)")
    parser.add_argument("--image-shape", type=int, nargs=3, default=(3, 224, 224), metavar=("C", "Y", "X"))
    parser.add_argument(
        "--input", metavar="FILE", help="an npz or npy with images (B, C, Y, X), and optionally raw, instead"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--train", action="store_true", help="leave the model in training mode: shows dropout left on")
    args = parser.parse_args()
    sys.path.insert(0, str(Path.cwd()))  # for module:factory
    try:
        _dump(args)
    except NumpyVitError as error:
        sys.exit(f"dump_reference: {error}")


def _dump(args: argparse.Namespace) -> None:
    if args.weights:
        port = open_port(args.weights)
        model = live.build(args.model, **live.sizes(args.model, port.config.image, port.config.num_classes))
        live.load_state(model, packed_like(live.state(model), port), args.weights)
        args.image_shape = (port.config.in_chans, *port.config.image)
    else:
        model = live.build(args.model)
    model.train(args.train)
    rng = np.random.default_rng(args.seed)
    images, raw = _input(args.input) if args.input else (rng.standard_normal((args.images, *args.image_shape)), None)
    images = images.astype(np.float64 if args.dtype == "float64" else np.float32)
    reference = live.trace(
        model, images, live.random_upstream(model, images, rng), args.dtype, raw=raw, source=args.model
    )
    write_reference(args.out, reference)
    print(f"{args.out}: {len(reference.outputs)} outputs, {len(reference.gradients)} gradients, {reference.dtype}")


def _input(path: str) -> tuple[np.ndarray, np.ndarray | None]:
    with np.load(path, allow_pickle=False) as stored:
        if isinstance(stored, np.ndarray):
            return stored, None
        return stored["images"], stored.get("raw")


if __name__ == "__main__":
    main()
