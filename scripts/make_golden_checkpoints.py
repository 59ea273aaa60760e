"""Make tests/checkpoints/golden: small files by torch, and what torch reads from them.

    python scripts/make_golden_checkpoints.py [FOLDER]

Needs torch (2.7 or later).  expected.json has for each file and path the dtype, the shape and the bytes in C
order, little-endian, in hexadecimal; dtypes that NumPy lacks are given as torch's float32 of them.
"""

from __future__ import annotations

import argparse
import collections
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

FLOATS8 = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu")
ANY_BYTES = ("float16", "bfloat16", "int16", "uint16", "int64", "uint32", "uint64", "int8", "uint8", *FLOATS8)


def random(rng: np.random.Generator, shape: tuple[int, ...], dtype: str = "float32") -> torch.Tensor:
    """Return random values of a dtype; of ANY_BYTES random bytes, nan and infinities among them."""
    if dtype in ANY_BYTES:
        width = torch.empty(0, dtype=getattr(torch, dtype)).element_size()
        raw = torch.from_numpy(rng.integers(0, 256, (*shape[:-1], shape[-1] * width)).astype(np.uint8))
        return raw.view(getattr(torch, dtype))
    values = torch.from_numpy(rng.standard_normal((*shape, 2)))
    if dtype.startswith("complex"):
        return torch.view_as_complex(values).to(getattr(torch, dtype))
    return values[..., 0].contiguous().to(getattr(torch, dtype)) if dtype != "bool" else values[..., 0] > 0


def objects(rng: np.random.Generator) -> dict[str, Any]:
    """Return what the files hold, by name."""
    plain = ("float64", "float32", "int32", "bool", "complex64", "complex128")
    base = random(rng, (3, 4))
    image = random(rng, (2, 3, 2, 2)).to(memory_format=torch.channels_last)
    state = collections.OrderedDict({"w": base, "b": random(rng, (3,))})
    return {
        "dtypes": {name: random(rng, (3, 2), name) for name in (*plain, *ANY_BYTES)},
        "views": {
            "base": base,
            "tied": base,
            "rows": base[1:],
            "column": base[:, 2],
            "transposed": base.T,
            "expanded": base[0].expand(3, 4),
            "image": image,
            "scalar": torch.tensor(2.5),
            "empty": torch.empty(0, 3),
            "conj": random(rng, (2,), "complex64").conj(),
        },
        "training": {
            "epoch": 3,
            "model": state,
            "optimizer": {
                "state": {0: {"step": torch.tensor(7.0), "exp_avg": random(rng, (2,))}},
                "groups": [{"lr": 0.1}],
            },
            "args": argparse.Namespace(model="vit", betas=(0.9, 0.95)),
            "array": rng.standard_normal((2, 2)),
            "more": [random(rng, (2,)), (random(rng, (1,)), None)],
        },
    }


def leaves(node: Any, path: str = "") -> dict[str, Any]:
    """Return the tensors of nested containers by path, independently of numpy_vit."""
    if isinstance(node, (torch.Tensor, np.ndarray)):
        return {path: node}
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, (list, tuple)) else ()
    found: dict[str, Any] = {}
    for key, child in items:
        found |= leaves(child, f"{path}/{key}" if path else str(key))
    return found


def as_numpy(tensor: Any) -> np.ndarray:
    """Return a tensor as the array that `read_tensors` makes of it."""
    if isinstance(tensor, np.ndarray):
        return tensor
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if tensor.dtype == torch.bfloat16 or str(tensor.dtype).startswith("torch.float8"):
        tensor = tensor.float()
    return np.ascontiguousarray(tensor.numpy()).reshape(tensor.shape)


def save(folder: Path) -> dict[str, dict[str, Any]]:
    """Write the files; return their tensors."""
    rng = np.random.default_rng(3)
    made = objects(rng)
    expected = {}
    for name, value in made.items():
        torch.save(value, folder / f"zip_{name}.pt")
        torch.save(value, folder / f"legacy_{name}.pt", _use_new_zipfile_serialization=False)
        expected[f"zip_{name}.pt"] = expected[f"legacy_{name}.pt"] = leaves(value)
    torch.save(made["training"], folder / "protocol4.pt", pickle_protocol=4)
    expected["protocol4.pt"] = leaves(made["training"])

    torch.serialization.set_crc32_options(False)
    torch.save(made["views"]["base"], folder / "no_crc.pt")
    torch.serialization.set_crc32_options(True)
    expected["no_crc.pt"] = {"": made["views"]["base"]}

    module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    for tensor in module.state_dict().values():
        if tensor.is_floating_point():
            tensor.copy_(random(rng, tuple(tensor.shape)))
    torch.save({"net": module}, folder / "module.pt")
    torch.jit.script(module.eval()).save(folder / "script.pt")
    expected["script.pt"] = dict(module.state_dict())
    expected["module.pt"] = {f"net/{name}": tensor for name, tensor in module.state_dict().items()}
    return expected


def main() -> None:
    default = Path(__file__).parent.parent / "tests" / "checkpoints" / "golden"
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else default
    folder.mkdir(exist_ok=True)
    rows = {}
    for file, tensors in sorted(save(folder).items()):
        arrays = {path: as_numpy(tensor) for path, tensor in tensors.items()}
        rows[file] = {path: [a.dtype.name, list(a.shape), a.tobytes().hex()] for path, a in arrays.items()}
    text = ",\n".join(f"{json.dumps(file)}: {json.dumps(row)}" for file, row in rows.items())
    (folder / "expected.json").write_text("{\n" + text + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
