"""How a model is trained: every number of a run that is not the model's or the data's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

from numpy_vit.data.augment import Augmentation
from numpy_vit.data.pillow_augment import check_channels
from numpy_vit.data.random_erasing import MODES as ERASE_MODES
from numpy_vit.data.random_erasing import Mode as EraseMode
from numpy_vit.data.transforms import PAD_MODES, PadMode, check_padding
from numpy_vit.training import adam, adamw, muon, schedules, sgd
from numpy_vit.training.distillation import KINDS as DISTILLATIONS

OPTIMIZERS: dict[str, ModuleType] = {"adamw": adamw, "adam": adam, "sgd": sgd, "muon": muon}


@dataclass(frozen=True)
class Recipe:
    """Optimizer, schedule, regularisation and augmentation of a run.

    Parameters
    ----------
    epochs, batch_size : passes over the training part; images a step
    optimizer : "adamw", "adam", "sgd" or "muon", which steps the blocks' matrices as wholes and the rest by AdamW
    lr, weight_decay : the rate after warm-up; 1-D arrays, tokens and positions are not decayed
    beta1, beta2 : of Adam and AdamW, which Muon leaves its vectors to
    momentum : of SGD and Muon
    nesterov : of SGD; Muon always looks ahead
    schedule, warmup_epochs : "cosine", "linear" or "constant" after a linear warm-up
    layer_decay : each layer's rate is the next one's times this; None for one rate
    clip : largest global norm of the gradient; None for no clipping
    label_smoothing : of the targets
    ema : decay of the averaged weights, which are then evaluated and saved; None for the last weights
    padding, pad_mode, flip : random crop after padding by so many pixels, "constant" or "reflect"; random mirroring
    affine : strength of small random rotations, scalings, shears and shifts
    crop_scale : smallest share of the image's area that a random resized crop takes; None for no such crop
    auto_augment : "rand-m9-mstd0.5-inc1" and the like for RandAugment, "3a" for 3-Augment; None for neither
    color_jitter : strength of random brightness, contrast and saturation
    erase, erase_mode : share of the images that lose a random box, which becomes the mean colour ("const") or noise of
        its own in every value ("pixel")
    mixup, cutmix : α of Mixup and of CutMix; 0 for none.  With both, a batch gets either with probability 1/2
    repeats : times that a sample comes in an epoch in which it comes; an epoch stays as long as it is
    patch_drop, patch_drop_until, patch_drop_steps : share of the patches that is dropped at first, the share of the
        epochs after which none is any more, and in how many equal steps it falls to that
    freeze : patterns of parameters that stay as they are, separated by commas, such as "stem" or "body"; None for none
    distill, distill_alpha, distill_temperature : "soft" or "hard" distillation from a teacher, the weight of its part
        of the loss, and the temperature of soft targets
    test_every : epochs between two looks at the test part, which the last epoch has in any case
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
    pad_mode: PadMode = "constant"
    flip: bool = False
    affine: float = 0.0
    crop_scale: float | None = None
    auto_augment: str | None = None
    color_jitter: float = 0.0
    erase: float = 0.0
    erase_mode: EraseMode = "const"
    mixup: float = 0.0
    cutmix: float = 0.0
    repeats: int = 1
    patch_drop: float = 0.0
    patch_drop_until: float = 0.6
    patch_drop_steps: int = 1
    freeze: str | None = None
    distill: str = "soft"
    distill_alpha: float = 0.5
    distill_temperature: float = 3.0
    test_every: int = 1
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
            "clip": (self.clip is None or self.clip > 0, "positive; None for no clipping"),
            "label_smoothing": (0 <= self.label_smoothing < 1, "in [0, 1)"),
            "ema": (self.ema is None or 0 <= self.ema < 1, "in [0, 1)"),
            "padding": (self.padding >= 0, "0 or positive"),
            "pad_mode": (self.pad_mode in PAD_MODES, f"one of {', '.join(PAD_MODES)}"),
            "affine": (0 <= self.affine <= 3, "in [0, 3]"),
            "crop_scale": (self.crop_scale is None or 0 < self.crop_scale <= 1, "in (0, 1]; None for no resized crop"),
            "color_jitter": (0 <= self.color_jitter < float("inf"), "0 or positive"),
            "erase": (0 <= self.erase <= 1, "in [0, 1]"),
            "erase_mode": (self.erase_mode in ERASE_MODES, f"one of {', '.join(ERASE_MODES)}"),
            "mixup": (0 <= self.mixup < float("inf"), "0 or positive"),
            "cutmix": (0 <= self.cutmix < float("inf"), "0 or positive"),
            "repeats": (1 <= self.repeats <= self.batch_size, f"between 1 and {self.batch_size}, the batch size"),
            "patch_drop": (0 <= self.patch_drop < 1, "in [0, 1)"),
            "patch_drop_until": (0 <= self.patch_drop_until <= 1, "in [0, 1]"),
            "patch_drop_steps": (self.patch_drop_steps >= 1, "at least 1"),
            "distill": (self.distill in DISTILLATIONS, f"one of {', '.join(DISTILLATIONS)}"),
            "distill_alpha": (0 <= self.distill_alpha <= 1, "in [0, 1]"),
            "distill_temperature": (0 < self.distill_temperature < float("inf"), "positive"),
            "test_every": (self.test_every >= 1, "at least 1"),
            "seed": (0 <= self.seed < 2**63, "between 0 and 2^63 - 1"),
        }
        for name, (fine, demand) in checks.items():
            if not fine:
                raise ValueError(f"{name} has to be {demand}, not {getattr(self, name)!r}")
        if self.nesterov and not self.momentum:
            raise ValueError("nesterov needs a momentum above 0")
        Augmentation(auto_augment=self.auto_augment)  # which refuses what it does not know
        if self.padding and self.crop_scale is not None:
            raise ValueError(f"padding {self.padding} and crop_scale {self.crop_scale} both crop: choose one of them")

    def check(self, shape: tuple[int, ...]) -> None:
        """Raise ValueError unless images of `shape` (C, Y, X) can be augmented so."""
        check_padding(shape, self.padding, self.pad_mode)
        if self.crop_scale is not None or self.auto_augment is not None or self.color_jitter:
            check_channels(shape[0])

    def patch_drop_in(self, epoch: int) -> float:
        """Return the share of the patches that is dropped in an epoch; epoch 0 is the first."""
        until, steps = self.patch_drop_until * self.epochs, self.patch_drop_steps
        left = sum(epoch < until * step / steps for step in range(1, steps + 1))  # steps down that are still to come
        return self.patch_drop * left / steps

    @property
    def update_matrix(self) -> Callable[..., None] | None:
        """The optimizer's step of a whole matrix, where it has one: see groups.apply."""
        return partial(muon.update_matrix, momentum=self.momentum) if self.optimizer == "muon" else None

    @property
    def hyper(self) -> dict[str, Any]:
        """What the optimizer's update takes besides rate and decay."""
        if self.optimizer == "sgd":
            return {"momentum": self.momentum, "nesterov": self.nesterov}
        return {"beta1": self.beta1, "beta2": self.beta2}
