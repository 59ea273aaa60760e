"""One thing that a port may have done differently."""

from __future__ import annotations

from dataclasses import dataclass

from numpy_vit.checks.port import Change


@dataclass(frozen=True)
class Alternative:
    """A difference to try, and what to say if it explains what is seen.

    Parameters
    ----------
    name : of the mistake, short and lasting: "qkv order k q v"; what a program looks for
    applied : completes "with ..."
    says : what it would mean
    change : what it does to our model
    """

    name: str
    applied: str
    says: str
    change: Change
