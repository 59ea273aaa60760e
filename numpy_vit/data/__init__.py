"""From files to batches: data sets, their statistics, normalisation and augmentation."""

from numpy_vit.data.affine import random_affine
from numpy_vit.data.augment import Augmentation
from numpy_vit.data.batches import batch_count, epoch_batches, order
from numpy_vit.data.cifar import load_cifar10, load_cifar100
from numpy_vit.data.dataset import Dataset, ImageSet, Split, statistics
from numpy_vit.data.folders import describe_skipped, load_folder
from numpy_vit.data.idx import read_idx, write_idx
from numpy_vit.data.mnist import load_fashion_mnist, load_mnist
from numpy_vit.data.preprocessing import Preprocessing
from numpy_vit.data.randomness import sample_rng
from numpy_vit.data.shapes import load_shapes
from numpy_vit.data.sources import SOURCES, load
from numpy_vit.data.subset import balanced, balanced_indices
from numpy_vit.data.transforms import horizontal_flip, normalise, random_crop

__all__ = [
    "SOURCES",
    "Augmentation",
    "Dataset",
    "ImageSet",
    "Preprocessing",
    "Split",
    "balanced",
    "balanced_indices",
    "batch_count",
    "describe_skipped",
    "epoch_batches",
    "horizontal_flip",
    "load",
    "load_cifar10",
    "load_cifar100",
    "load_fashion_mnist",
    "load_folder",
    "load_mnist",
    "load_shapes",
    "normalise",
    "order",
    "random_affine",
    "random_crop",
    "read_idx",
    "sample_rng",
    "statistics",
    "write_idx",
]
