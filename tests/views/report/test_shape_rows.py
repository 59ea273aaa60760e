"""The shape table says what a real forward's tensors are."""

from __future__ import annotations

import pytest

from numpy_vit.models import deit, vit
from numpy_vit.views.report import shape_rows

FIELDS = [
    {}, {"class_token": False, "global_pool": "avg", "qkv_bias": False}, {"reg_tokens": 2, "block": "post_norm"},
    {"num_classes": 0}, {"pre_logits": 5}, {"global_pool": "map", "head_dim": None},
]  # fmt: skip


@pytest.mark.parametrize(("model", "fields"), [*((vit, fields) for fields in FIELDS), (deit, {}), (vit, {"depth": 1})])
def test_rows_are_what_a_forward_records(small, model, fields):
    made = small(model, **fields)
    record = {}
    _, cache = model.forward(made.params, made.images[:1], made.config, record=record)
    shown = {name: shape for name, shape, _ in shape_rows.rows(made.config)}
    last = made.config.depth - 1
    blocks = f"blocks.0…{last}" if last else "blocks.0"
    expected = {"image": made.images[:1].shape, f"{blocks}.attn weights": model.attention_weights(cache)[0].shape}
    for name, array in record.items():
        if not name.startswith("blocks.") or name.startswith("blocks.0"):
            expected[name.replace("blocks.0", blocks)] = array.shape
    assert shown == {name: " × ".join(map(str, shape)) for name, shape in expected.items()}


def test_a_model_without_a_head_ends_in_features(small):
    name, _, words = shape_rows.rows(small(num_classes=0).config)[-1]
    assert (name, words) == ("logits", "the features: this model has no head")
