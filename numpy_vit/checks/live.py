"""Running a live PyTorch model and writing down what it computes, under timm's names.

The only part of the package that imports a framework, and it does so only when it is asked to.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from numpy_vit.checks.precision import PRECISIONS
from numpy_vit.checks.reference import Reference, ReferenceError
from numpy_vit.tree import Array

# The modules of other libraries that compute what timm's compute: pattern -> timm's name.
_HF = (
    r"(?:\w+\.)?(?:encoder\.)?layers?\.(\d+)"  # "vit.encoder.layer.0", "vit.layers.0", "vision_model.encoder.layers.0"
)
_TORCHVISION = r"encoder\.layers\.encoder_layer_(\d+)"
_NAMES: tuple[tuple[str, str], ...] = (
    # Hugging Face transformers: ViT, DeiT, Dinov2, CLIP, SigLIP, on disk and in memory
    (r"(?:\w+\.)?embeddings\.patch_embeddings?", "patch_embed"),
    (r"(?:\w+\.)?embeddings", "pos_drop"),
    (r"(?:\w+\.)?pre_layrnorm", "norm_pre"),
    (_HF, r"blocks.\1"),
    (rf"{_HF}\.(?:layernorm_before|norm1|layer_norm1)", r"blocks.\1.norm1"),
    (rf"{_HF}\.(?:layernorm_after|norm2|layer_norm2)", r"blocks.\1.norm2"),
    (rf"{_HF}\.(?:attention|self_attn)", r"blocks.\1.attn"),
    (rf"{_HF}\.(?:attention\.output\.dense|attention\.o_proj|self_attn\.out_proj)", r"blocks.\1.attn.proj"),
    (rf"{_HF}\.intermediate\.dense", r"blocks.\1.mlp.fc1"),
    (rf"{_HF}\.(?:intermediate|mlp\.activation_fn|mlp\.activation)", r"blocks.\1.mlp.act"),
    (rf"{_HF}\.(?:output\.dense|mlp)", r"blocks.\1.mlp"),
    (rf"{_HF}\.mlp\.(fc1|fc2)", r"blocks.\1.mlp.\2"),
    (r"(?:\w+\.)?layernorm", "norm"),
    # torchvision
    ("conv_proj", "patch_embed"),
    (r"encoder\.dropout", "pos_drop"),
    (_TORCHVISION, r"blocks.\1"),
    (rf"{_TORCHVISION}\.ln_(\d)", r"blocks.\1.norm\2"),
    (rf"{_TORCHVISION}\.self_attention", r"blocks.\1.attn"),
    (rf"{_TORCHVISION}\.mlp", r"blocks.\1.mlp"),
    (rf"{_TORCHVISION}\.mlp\.0", r"blocks.\1.mlp.fc1"),
    (rf"{_TORCHVISION}\.mlp\.1", r"blocks.\1.mlp.act"),
    (rf"{_TORCHVISION}\.mlp\.3", r"blocks.\1.mlp.fc2"),
    (r"encoder\.ln", "norm"),
    # models written by hand
    (r"blocks\.(\d+)\.mlp\.(?:net\.)?0", r"blocks.\1.mlp.fc1"),
    (r"blocks\.(\d+)\.mlp\.(?:net\.)?1", r"blocks.\1.mlp.act"),
    (r"blocks\.(\d+)\.mlp\.(?:net\.)?3", r"blocks.\1.mlp.fc2"),
    (r"blocks\.(\d+)\.ln(\d)", r"blocks.\1.norm\2"),
    ("patch", "patch_embed"),
    ("ln", "norm"),
)
_OURS = re.compile(
    r"patch_embed|pos_drop|norm_pre|norm|fc_norm|pre_logits"
    r"|blocks\.\d+(\.(norm1|norm2|attn|attn\.qkv|attn\.proj|mlp|mlp\.fc1|mlp\.act|mlp\.fc2))?"
)

# libraries whose models come without weights here, and their arguments for the image's sides and the classes
_SIZES = {"timm": "img_size", "torchvision": "image_size"}


def sizes(name: str, image: tuple[int, int], classes: int) -> dict[str, Any]:
    """Return the options for `build` with which a named model has these sizes; none where it has its own."""
    option = _SIZES.get(name.partition(":")[0])
    if option is None:
        return {}
    side: Any = image if option == "img_size" else image[0]
    return {option: side, "num_classes": classes}


def has_weights(name: str) -> bool:
    """Return whether `build` gives this model its own weights rather than random ones."""
    return name.partition(":")[0] not in _SIZES


def timm_name(name: str) -> str:
    """Return what timm calls the module that computes this; the name itself where no rule knows it."""
    for pattern, timm in _NAMES:
        if match := re.fullmatch(pattern, name):
            return match.expand(timm)
    return name


def build(name: str, **options: Any) -> Any:
    """Build a model in evaluation mode: "timm:NAME", "torchvision:NAME", "hf:FOLDER" or "module:factory".

    Parameters
    ----------
    name : what to build; a factory takes no arguments and returns the model with its weights
    options : handed to timm or torchvision, such as num_classes

    Raises
    ------
    ReferenceError : the library is not installed, or does not know the model.
    """
    library, _, rest = name.partition(":")
    if not rest:
        raise ReferenceError(f"{name!r} names no model: write timm:NAME, torchvision:NAME, hf:FOLDER or module:factory")
    try:
        if library == "timm":
            model = importlib.import_module("timm").create_model(rest, pretrained=False, **options)
        elif library == "torchvision":
            model = importlib.import_module("torchvision").models.get_model(rest, **options)
        elif library == "hf":
            transformers = importlib.import_module("transformers")
            model = transformers.AutoModelForImageClassification.from_pretrained(rest, local_files_only=True)
        else:
            model = getattr(importlib.import_module(library), rest)()
    except ImportError as error:
        raise ReferenceError(f"{name} needs {error.name or library}, which is not installed here: {error}") from error
    except (AttributeError, ValueError, RuntimeError, OSError) as error:
        raise ReferenceError(f"{name} cannot be built: {str(error).splitlines()[0]}") from error
    return model.eval()


def load_state(model: Any, tensors: Mapping[str, Array], what: str) -> None:
    """Put tensors into a live model, whose names and shapes they have to have.

    Raises
    ------
    ReferenceError : they do not fit.
    """
    torch = importlib.import_module("torch")
    try:
        model.load_state_dict({key: torch.from_numpy(np.array(leaf)) for key, leaf in tensors.items()}, strict=True)
    except RuntimeError as error:
        detail = " ".join(str(error).split())
        raise ReferenceError(f"{what} does not fit the live model: {detail[:300]}") from error


def state(model: Any) -> dict[str, Array]:
    """Return a live model's tensors under its own names."""
    return {key: _numpy(tensor) for key, tensor in model.state_dict().items()}


def trace(
    model: Any,
    images: Array,
    upstream: Array | None = None,
    dtype: str = "float32",
    rename: Callable[[str], str] = timm_name,
    raw: Array | None = None,
    source: str = "",
) -> Reference:
    """Run a PyTorch model twice forward and once backward; return everything that it computed.

    Parameters
    ----------
    model : in the mode in which it is to be compared: call eval() for evaluation
    images : (B, C, Y, X)
    upstream : (B, K); None for no gradients
    dtype : "float64", "float32", "bfloat16" or "float16", to which the model is converted
    rename : from the model's module names to timm's
    raw : (B, Y', X', C), the pictures before preprocessing, to go into the reference
    source : what made it, in words

    Raises
    ------
    ReferenceError : torch is not installed, or the outputs cannot serve as a reference.
    """
    try:
        torch = importlib.import_module("torch")
    except ImportError as error:
        raise ReferenceError(
            "a live model needs torch, which is not installed: compare with a reference file"
        ) from error
    if dtype not in PRECISIONS:
        raise ReferenceError(f"dtype {dtype!r} is unknown: choose one of {', '.join(PRECISIONS)}")
    kind = getattr(torch, dtype)
    model = model.to(kind)
    inputs = torch.tensor(images).to(kind).requires_grad_(True)
    logits, outputs = _run(model, inputs, rename)
    gradients: dict[str, Array] = {}
    if upstream is not None:
        names, leaves = zip(*((n, p) for n, p in model.named_parameters() if p.requires_grad), strict=True)
        dlogits = torch.tensor(upstream).to(kind)
        found = torch.autograd.grad(logits, [inputs, *leaves], dlogits, allow_unused=True)
        gradients = {
            name: _numpy(gradient)
            for name, gradient in zip(("images", *names), found, strict=True)
            if gradient is not None
        }
        upstream = _numpy(dlogits)
    with torch.no_grad():
        _, second = _run(model, inputs, rename)
    differs = any(not np.array_equal(outputs[name], second[name], equal_nan=True) for name in outputs)
    return Reference(
        _numpy(inputs), outputs, dtype, upstream, gradients, raw, second if differs else {}, source,
    )  # fmt: skip


def random_upstream(model: Any, images: Array, rng: np.random.Generator) -> Array:
    """Return a random upstream gradient of the shape of the model's logits for these images."""
    torch = importlib.import_module("torch")
    with torch.no_grad():
        logits = _first(model(torch.tensor(images[:1], dtype=next(model.parameters()).dtype)))
    return rng.standard_normal((len(images), logits.shape[1])).astype(images.dtype)


def _run(model: Any, inputs: Any, rename: Callable[[str], str]) -> tuple[Any, dict[str, Array]]:
    outputs: dict[str, Array] = {}
    hooks = [
        module.register_forward_hook(lambda module, args, output, name=name: _note(outputs, name, output))
        for name, module in _renamed(model.named_modules(), rename)
    ]
    try:
        answer = _first(model(inputs))
    finally:
        for hook in hooks:
            hook.remove()
    outputs["logits"] = _numpy(answer)
    return answer, outputs


def _renamed(modules: Iterable[tuple[str, Any]], rename: Callable[[str], str]) -> list[tuple[str, Any]]:
    """Under timm's names, those that our model records: the others could not be compared."""
    named = [(rename(name), module) for name, module in modules]
    return [(name, module) for name, module in named if _OURS.fullmatch(name)]


def _note(outputs: dict[str, Array], name: str, output: Any) -> None:
    tensor = _first(output)
    if not hasattr(tensor, "detach"):
        return
    array = _numpy(tensor)
    if name == "patch_embed" and array.ndim == 4:  # a convolution's (B, D, rows, columns)
        array = array.reshape(*array.shape[:2], -1).swapaxes(1, 2)
    outputs.pop(name, None)  # a module that is called twice stands where its second call was
    outputs[name] = array


def _first(output: Any) -> Any:
    """The tensor of a tensor, of a tuple, or of Hugging Face's output."""
    for name in ("logits", "image_embeds"):
        if hasattr(output, name):
            return getattr(output, name)
    return output[0] if isinstance(output, (tuple, list)) else output


def _numpy(tensor: Any) -> Array:
    """An array in the tensor's dtype, float32 for bfloat16, which NumPy lacks."""
    tensor = tensor.detach().cpu()
    if str(tensor.dtype) == "torch.bfloat16":
        tensor = tensor.float()
    array: Array = np.array(tensor.numpy())
    return array
