"""Whom a student learns from: a model that looks at the same images, or logits from a file."""

from __future__ import annotations

import os
import reprlib
import zlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np

from numpy_vit import tree
from numpy_vit.checkpoints.reading import read_tensors
from numpy_vit.data import Preprocessing
from numpy_vit.data.dataset import ImageSet
from numpy_vit.errors import CheckpointError, DataError
from numpy_vit.files import replacing
from numpy_vit.training.opened import Opened, checkpoint_path, open_model, preprocessing_of
from numpy_vit.training.step import logits as model_logits
from numpy_vit.tree import Array, Params

# Maps images (B, C, Y, X), normalised for the student, and their indices (B,) in the training part to logits (B, K).
Teacher: TypeAlias = Callable[[Array, Array], Array]

_KEY, _IMAGES = "logits", "images"
_PIECE = 1 << 20  # bytes that are read at once
_INSTEAD = f"take a teacher that fits, or a file of logits, numpy.savez(NAME, {_KEY}=...)"


def teacher(spec: str | os.PathLike[str], train: ImageSet, student: Preprocessing, workers: int = 1) -> Teacher:
    """Return the teacher that a file holds: saved logits, or a checkpoint of any known layout.

    Parameters
    ----------
    spec : a file with an array `logits`, a checkpoint, or the folder of a run
    train : the training part, whose samples or classes the teacher has to know
    student : how the student's images are normalised
    workers : threads that share a model's batch

    Raises
    ------
    CheckpointError : the file cannot be read, or is of no known layout.
    DataError : it does not fit the classes, the samples or the student's images.
    """
    path = Path(spec)
    if not path.is_dir() and _KEY in read_tensors(path, mmap=True):
        return saved_logits(path, train)
    opened = _opened(path)
    _check_classes(opened, train.class_names)
    _check_images(opened.config, student)
    transform, _ = preprocessing_of(opened)
    own = Preprocessing(student.size, student.channels, transform.mean, transform.std)
    return model_teacher(opened.model, opened.params, opened.config, own, student, workers)


def model_teacher(
    model: ModuleType, params: Params, config: Any, own: Preprocessing, student: Preprocessing, workers: int = 1
) -> Teacher:
    """Return a teacher that looks at exactly the images that the student sees, augmented and mixed.

    Where both normalise differently, pixels are taken from the student's statistics to the teacher's own.

    Parameters
    ----------
    model, params, config : the teacher's module, its parameters and configuration
    own, student : what each model's images were normalised with
    workers : threads that share a batch; each should have one BLAS thread

    Raises
    ------
    DataError : the teacher takes images of another size or number of channels; later, where it is called, logits that
        are not finite.
    """
    _check_images(config, student)
    dtype = next(iter(tree.flatten(params).values())).dtype
    scale, offset = _change(student, own, dtype)

    def teach(images: Array, indices: Array) -> Array:
        x = images.astype(dtype, copy=False)
        if (own.mean, own.std) != (student.mean, student.std):
            x = x * scale + offset
        found = model_logits(model, params, config, x, workers=workers).astype(np.float32, copy=False)
        if not np.isfinite(found).all():
            raise DataError("the teacher's logits are not finite: its weights are broken, take another teacher")
        return found

    return teach


def checksum(spec: str | os.PathLike[str]) -> str:
    """Return a checksum of the file that a teacher is, so that a run can go on with the same one only.

    Raises
    ------
    DataError : the file cannot be read.
    """
    path, crc = checkpoint_path(spec), 0
    try:
        with path.open("rb") as file:
            while part := file.read(_PIECE):
                crc = zlib.crc32(part, crc)
    except OSError as error:
        raise DataError(f"{path}: the teacher cannot be read: {error.strerror}") from error
    return f"{crc:08x}"


def saved_logits(path: str | os.PathLike[str], train: ImageSet) -> Teacher:
    """Return a teacher that looks up logits in a file: one array `logits` (n, K), row i for training sample i.

    They cost no time in training, but they are those of the image as it is in the data set: the teacher does not see
    what augmentation and mixing make of it.  Where the file has the fingerprint of the images that they were made for,
    as `save_logits` writes it, it has to be that of the training part.

    Parameters
    ----------
    path : .npz, .safetensors or any other file that `read_tensors` reads
    train : the training part, of n samples and K classes

    Raises
    ------
    CheckpointError : the file cannot be read.
    DataError : no such array, or one of another shape or type, with entries that are not finite, or of other images.
    """
    tensors = read_tensors(path)
    if _KEY not in tensors:
        raise DataError(f"{path} has no array {_KEY!r}: save it with numpy.savez(NAME, {_KEY}=...)")
    stored = tensors[_KEY]
    if stored.dtype not in (np.float16, np.float32, np.float64):
        raise DataError(f"{path}: logits have to be float16, float32 or float64, not {stored.dtype}")
    count, classes = len(train), len(train.class_names)
    if stored.shape != (count, classes):
        raise DataError(
            f"{path}: logits {stored.shape} have to be ({count}, {classes}), a row for each training sample and a "
            "column for each class: save them for this data set, in its order"
        )
    if _IMAGES in tensors and tensors[_IMAGES].tolist() != [train.fingerprint()]:
        raise DataError(
            f"{path}: the logits were made for other images, or in another order: write them anew with numpy-vit eval "
            "TEACHER --part train --logits FILE, for the same data, --train-images, --seed and --image-size"
        )
    with np.errstate(over="ignore"):
        rows = stored.astype(np.float32, copy=False)
    bad = ~np.isfinite(rows).all(axis=1)
    if bad.any():
        raise DataError(
            f"{path}: {bad.sum()} rows are not finite in float32, the first is row {bad.argmax()}: "
            "look at the teacher that made them"
        )
    return lambda images, indices: rows[indices]


def save_logits(path: str | os.PathLike[str], logits: Array, images: ImageSet | None = None) -> None:
    """Write a teacher's logits (n, K), row i for training sample i, as an .npz, whole or not at all.

    Parameters
    ----------
    images : the images that they were made for, whose fingerprint is written as well

    Raises
    ------
    ValueError : not two-dimensional, another type than float16, float32 or float64, or entries that are not finite.
    """
    if logits.ndim != 2 or logits.dtype not in (np.float16, np.float32, np.float64):
        raise ValueError(f"logits have to be (n, K) of a float type, not {logits.shape} of {logits.dtype}")
    if not np.isfinite(logits).all():
        raise ValueError("logits have to be finite: look at the teacher that made them")
    marks: dict[str, Any] = {} if images is None else {_IMAGES: np.array([images.fingerprint()], np.int64)}
    with replacing(path) as file:
        np.savez(file, **{_KEY: logits, **marks})


def _opened(path: Path) -> Opened:
    try:
        return open_model(path)
    except CheckpointError as error:
        if not str(error).endswith("give num_heads"):
            raise
        how = f"with numpy-vit convert {path} NAME.safetensors --num-heads N, and take NAME.safetensors as the teacher"
        raise CheckpointError(f"{error} {how}") from error


def _check_classes(opened: Opened, class_names: tuple[str, ...]) -> None:
    """The number has to fit, and the names where they are known: as many classes of other things teach nonsense."""
    path, count = opened.path, opened.config.num_classes
    if count != len(class_names):
        raise DataError(f"{path} gives {count} logits, the data has {len(class_names)} classes: {_INSTEAD}")
    names = opened.extra.get("class_names")
    if isinstance(names, list) and names != list(class_names):
        theirs, ours = (reprlib.repr(list(some)) for some in (names, class_names))
        raise DataError(f"{path} was trained on classes {theirs}, the data has {ours}: {_INSTEAD}")


def _check_images(config: Any, student: Preprocessing) -> None:
    takes, gets = (config.in_chans, *config.image), (student.channels, *student.size)
    if takes != gets:
        raise DataError(f"the teacher takes images (C, Y, X) of {takes}, the student sees {gets}: {_INSTEAD}")


def _change(old: Preprocessing, new: Preprocessing, dtype: Any) -> tuple[Array, Array]:
    """Return scale and offset (C, 1, 1) that take pixels from one normalisation to another.

    x = (v - m)/s and y = (v - m')/s'  ⇒  y = x s/s' + (m - m')/s'.
    """
    m, s, m_new, s_new = (np.array(row)[:, None, None] for row in (old.mean, old.std, new.mean, new.std))
    return (s / s_new).astype(dtype), ((m - m_new) / s_new).astype(dtype)
