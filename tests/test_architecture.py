"""The house rules that a reader of the code relies on, read off the source itself."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path

import numpy as np
import pytest

import numpy_vit
from numpy_vit import tree
from numpy_vit.checks import catalogue
from numpy_vit.checks.examples import MODELS

PACKAGE = Path(numpy_vit.__file__).parent
FILES = {path.relative_to(PACKAGE).as_posix(): path for path in sorted(PACKAGE.rglob("*.py"))}
NAMES = catalogue.names()

GROUND = {"tree", "errors", "files"}
# What each room may import besides itself and the ground.
BELOW: dict[str, set[str]] = {
    "": set(),
    **{name: set() for name in GROUND},
    "layers": set(),
    "models": {"layers"},
    "data": set(),
    "checkpoints": {"models"},
    "training": {"models", "data", "checkpoints", "layers"},
    "checks": {"layers", "models", "checkpoints"},
    "views": {"models", "data", "checkpoints"},
    "bench": {"models", "layers", "data", "training", "views"},
    "__main__": {"cli"},
    "cli": {"layers", "models", "data", "checkpoints", "training", "checks", "views", "bench"},
}
# The only layers that training names: the losses, and the head of fine-tuning and probing.
TRAINING_LAYERS = {
    f"numpy_vit.layers.{name}" for name in ("cross_entropy", "kl_divergence", "linear", "recording.Take")
}


def room(file: str) -> str:
    """Return the first part of "layers/linear.py" or "tree.py": a sub-package, a module of the ground or ""."""
    return "" if file == "__init__.py" else file.split("/")[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    """Return the dotted names that a file imports anywhere; `from numpy_vit import tree` names numpy_vit.tree."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: relative imports hide which room they come from"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def own(names: set[str]) -> set[str]:
    return {name for name in names if name.startswith("numpy_vit.") and name != "numpy_vit.__version__"}


@pytest.mark.parametrize("file", FILES)
def test_imports_point_downwards(file):
    here = room(file)
    assert here in BELOW, f"{file}: a room that ARCHITECTURE does not have"
    if here == "":
        allowed = set()
    elif here in GROUND:
        allowed = {here}  # the ground imports nothing of ours
    else:
        allowed = {here} | GROUND | BELOW[here]
    for name in own(imports(FILES[file])):
        assert name.split(".")[1] in allowed, f"{file} imports {name}"
        if here == "training" and name.startswith("numpy_vit.layers"):
            assert name in TRAINING_LAYERS, f"{file} imports {name}"


@pytest.mark.parametrize("file", FILES)
def test_nothing_but_the_standard_library_numpy_and_pillow(file):
    foreign = {name.split(".")[0] for name in imports(FILES[file])} - sys.stdlib_module_names
    assert foreign <= {"numpy", "PIL", "numpy_vit"}
    if room(file) in {"layers", "models"}:
        assert foreign <= {"numpy", "numpy_vit"}


def test_importing_the_package_imports_nothing():
    assert imports(FILES["__init__.py"]) == set()
    program = "import sys; before = set(sys.modules); import numpy_vit; print(sorted(set(sys.modules) - before))"
    answer = subprocess.run(
        [sys.executable, "-c", program], cwd=PACKAGE.parent, check=True, capture_output=True, text=True, timeout=60
    )
    assert answer.stdout.strip() == "['numpy_vit']"


@pytest.mark.parametrize("folder", ["layers", "models", "data", "checkpoints", "training", "checks", "views", "bench"])
def test_modules_of_a_room_form_no_cycle(folder):
    modules = {f"numpy_vit.{file.removesuffix('.py').replace('/', '.')}": path for file, path in FILES.items()}
    modules = {name: path for name, path in modules.items() if name.startswith(f"numpy_vit.{folder}.")}
    modules.pop(f"numpy_vit.{folder}.__init__", None)
    needs = {name: imports(path) for name, path in modules.items()}
    above = {
        name: {other for other in modules for target in targets if f"{target}.".startswith(f"{other}.")}
        for name, targets in needs.items()
    }
    while leaves := {name for name, others in above.items() if not others & above.keys()}:
        for name in leaves:
            del above[name]
    assert not above, f"these import each other: {sorted(above)}"


@pytest.mark.parametrize("file", FILES)
def test_files_are_short_and_about_a_subject(file):
    assert len(FILES[file].read_text("utf-8").splitlines()) <= 300
    assert FILES[file].stem not in {"utils", "util", "common", "helpers", "misc"}


@pytest.mark.parametrize("file", FILES)
def test_nobody_makes_a_generator_inside_a_layer_or_touches_the_environment(file):
    nodes = ast.walk(ast.parse(FILES[file].read_text("utf-8")))
    attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    if room(file) in {"layers", "models"}:
        assert not attributes & {"default_rng", "RandomState", "seed"}
    if room(file) != "cli":
        assert not attributes & {"environ", "putenv"}


def functions(path: Path) -> dict[str, ast.FunctionDef]:
    return {node.name: node for node in ast.parse(path.read_text("utf-8")).body if isinstance(node, ast.FunctionDef)}


def layer_path(name: str) -> Path:
    return FILES[f"{'models' if name in MODELS else 'layers'}/{name}.py"]


def test_the_catalogue_has_every_layer():
    layers = [path for file, path in FILES.items() if room(file) == "layers"]
    with_backward = {path.stem for path in layers if "backward" in functions(path)}
    # `optional` only hands on the layer it is given; its own derivation is y = x.
    assert with_backward - {"optional"} == set(NAMES) - set(MODELS)


@pytest.mark.parametrize("name", NAMES)
def test_backward_holds_its_derivation(name):
    path = layer_path(name)
    derivation = ast.get_docstring(functions(path)["backward"])
    steps = [int(n) for n in re.findall(r"^\s*\((\d+)\) ", derivation, re.MULTILINE)]
    assert steps == list(range(1, len(steps) + 1)), "numbered (1), (2), ... one a line"
    assert 1 <= len(steps) <= 12
    comments = [
        token.string
        for token in tokenize.generate_tokens(io.StringIO(path.read_text("utf-8")).readline)
        if token.type == tokenize.COMMENT
    ]
    used = {int(n) for comment in comments for n in re.findall(r"(?<!\w)\((\d+)\)", comment)}  # not log(0)
    assert used, "no line says which step it is"
    assert used <= set(steps), f"comments name steps {sorted(used - set(steps))}, which the docstring lacks"


@pytest.mark.parametrize("name", NAMES)
def test_signatures_are_alike(name):
    made = functions(layer_path(name))
    if "init" in made:  # post_norm_block takes the pre-norm block's
        assert made["forward"].args.args[0].arg in ("params", "q")
    gradient, cache, *_ = (argument.arg for argument in made["backward"].args.args)
    assert gradient.startswith("d")
    assert cache == "cache"


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", [name for name in NAMES if catalogue.cases(name)[0].params is not None])
def test_gradients_have_the_keys_shapes_and_dtypes_of_the_parameters(name, dtype):
    for case in catalogue.cases(name):
        params, x = (tree.map(lambda leaf: leaf.astype(dtype), node) for node in (case.params, case.x))
        y, cache = case.forward(params, x)
        flat, grads = tree.flatten(params), tree.flatten(case.backward(y, cache)[1])
        assert grads.keys() == flat.keys()
        assert {key: (leaf.shape, leaf.dtype) for key, leaf in grads.items()} == {
            key: (leaf.shape, leaf.dtype) for key, leaf in flat.items()
        }
