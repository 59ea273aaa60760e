"""Files to trees of arrays and back; nothing in a file is ever executed."""

from numpy_vit.checkpoints.load import Loaded, load
from numpy_vit.checkpoints.reading import read_tensors

__all__ = ["Loaded", "load", "read_tensors"]
