"""One paper a file, built from layers, and a table of named variants."""

from numpy_vit.models.variants import variant_names, vit_config

__all__ = ["variant_names", "vit_config"]
