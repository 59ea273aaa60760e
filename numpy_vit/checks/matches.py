"""A comparison for somebody's own test suite."""

from __future__ import annotations

import os
from typing import Any

from numpy_vit.checks.compare import compare
from numpy_vit.checks.comparison import Comparison
from numpy_vit.checks.opening import gradients_of, open_port, port_of_params
from numpy_vit.checks.reference import Reference, read_reference
from numpy_vit.models import vit
from numpy_vit.tree import Params


def assert_matches(
    model: str | os.PathLike[str] | tuple[Params, vit.Config],
    reference: str | os.PathLike[str] | Reference,
    **overrides: Any,
) -> Comparison:
    """Assert that a model computes what a reference says, forward and backward, up to rounding.

        assert_matches("model.safetensors", "reference.npz", norm_eps=1e-6)
        assert_matches((params, config), trace(torch_model, images, upstream))

    Parameters
    ----------
    model : a checkpoint of any layout, or (parameters, configuration)
    reference : a reference file or its content
    overrides : fields of the configuration that the checkpoint does not say

    Returns
    -------
    comparison : of which `rows` say how near every tensor is

    Raises
    ------
    AssertionError : they differ; the text is the report, with the first tensor that differs and the causes found.
    CheckpointError : they cannot be compared.
    """
    known = reference if isinstance(reference, Reference) else read_reference(reference)
    if isinstance(model, tuple):
        params, config = model
        if overrides:
            raise ValueError(f"{', '.join(overrides)} cannot be given beside a configuration: put them into it")
        port = port_of_params(params, config)
    else:
        height, width = known.images.shape[2:]
        port = open_port(model, (height, width), **overrides)
    comparison = compare(port, known, gradients_of(known, port))
    comparison.raise_if_different()
    return comparison
