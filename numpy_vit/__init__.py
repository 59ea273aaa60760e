"""Vision Transformers in plain NumPy, every gradient derived by hand and checked.

Nothing is imported here, so that `import numpy_vit` is free and the command line can choose the
number of BLAS threads before NumPy loads.  Import the rooms you need: `from numpy_vit.models import vit`.
"""

__version__ = "0.1.0"
