"""How a model is trained: every number of a run that is not the model's or the data's."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any

from numpy_vit.training import adam, adamw, schedules, sgd

OPTIMIZERS: dict[str, ModuleType] = {"adamw": adamw, "adam": adam, "sgd": sgd}


@dataclass(frozen=True)
class Recipe:
    """Optimizer, schedule, regularisation and augmentation of a run.

    Parameters
    ----------
    epochs, batch_size : passes over the training part; images a step
    optimizer : "adamw", "adam" or "sgd"
    lr, weight_decay : the rate after warm-up; 1-D arrays, tokens and positions are not decayed
    beta1, beta2 : of Adam and AdamW
    momentum, nesterov : of SGD
    schedule, warmup_epochs : "cosine", "linear" or "constant" after a linear warm-up
    layer_decay : each layer's rate is the next one's times this; None for one rate
    clip : largest global norm of the gradient; None for no clipping
    label_smoothing : of the targets
    ema : decay of the averaged weights, which are then evaluated and saved; None for the last weights
    padding, flip : random crop after padding by so many pixels; random horizontal flip
    affine : strength of small random rotations, scalings, shears and shifts
    seed : of everything random: start, order, augmentation, dropout

    Raises
    ------
    ValueError : a value out of range, named with the remedy.
    """

    epochs: int = 30
    batch_size: int = 64
    optimizer: str = "adamw"
    lr: float = 1e-3
    weight_decay: float = 0.05
    beta1: float = 0.9
    beta2: float = 0.999
    momentum: float = 0.9
    nesterov: bool = False
    schedule: str = "cosine"
    warmup_epochs: float = 1.0
    layer_decay: float | None = None
    clip: float | None = 1.0
    label_smoothing: float = 0.0
    ema: float | None = None
    padding: int = 0
    flip: bool = False
    affine: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        checks = {
            "epochs": (self.epochs >= 1, "at least 1"),
            "batch_size": (self.batch_size >= 1, "at least 1"),
            "optimizer": (self.optimizer in OPTIMIZERS, f"one of {', '.join(OPTIMIZERS)}"),
            "lr": (0 < self.lr < float("inf"), "positive"),
            "weight_decay": (0 <= self.weight_decay < float("inf"), "0 or positive"),
            "beta1": (0 <= self.beta1 < 1, "in [0, 1)"),
            "beta2": (0 <= self.beta2 < 1, "in [0, 1)"),
            "momentum": (0 <= self.momentum < 1, "in [0, 1)"),
            "schedule": (self.schedule in schedules.SCHEDULES, f"one of {', '.join(schedules.SCHEDULES)}"),
            "warmup_epochs": (0 <= self.warmup_epochs < self.epochs, f"at least 0 and less than {self.epochs} epochs"),
            "layer_decay": (self.layer_decay is None or 0 < self.layer_decay <= 1, "in (0, 1]"),
            "clip": (self.clip is None or self.clip > 0, "positive; leave it out for no clipping"),
            "label_smoothing": (0 <= self.label_smoothing < 1, "in [0, 1)"),
            "ema": (self.ema is None or 0 <= self.ema < 1, "in [0, 1)"),
            "padding": (self.padding >= 0, "0 or positive"),
            "affine": (0 <= self.affine <= 3, "in [0, 3]"),
            "seed": (0 <= self.seed < 2**63, "between 0 and 2^63 - 1"),
        }
        for name, (fine, demand) in checks.items():
            if not fine:
                raise ValueError(f"{name} has to be {demand}, not {getattr(self, name)!r}")
        if self.nesterov and not self.momentum:
            raise ValueError("nesterov needs a momentum above 0")

    @property
    def hyper(self) -> dict[str, Any]:
        """What the optimizer's update takes besides rate and decay."""
        if self.optimizer == "sgd":
            return {"momentum": self.momentum, "nesterov": self.nesterov}
        return {"beta1": self.beta1, "beta2": self.beta2}


# What `numpy-vit train` does for each data set when nothing else is said: the model's variant and the recipe.
DEFAULTS: dict[str, tuple[str, Recipe]] = {
    "digits": ("vit_digits_rows_8", Recipe(epochs=100, lr=3e-3, weight_decay=0.3, warmup_epochs=3, affine=1.0)),
    "mnist": ("vit_mnist_rows_28", Recipe(epochs=10, lr=2e-3, weight_decay=0.1, affine=0.7)),
    "fashion-mnist": ("vit_mnist_rows_28", Recipe(epochs=14, lr=2e-3, weight_decay=0.1, flip=True)),
}
