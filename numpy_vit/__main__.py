"""python -m numpy_vit."""

import sys

from numpy_vit.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
