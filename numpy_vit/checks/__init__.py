"""Checks of hand-derived gradients: `gradcheck` compares a backward with its forward."""

from __future__ import annotations

from numpy_vit.checks.gradient_check import gradcheck
from numpy_vit.checks.matches import assert_matches
from numpy_vit.checks.report import Report, Row

__all__ = ["Report", "Row", "assert_matches", "gradcheck"]
