"""``python -m ttaps``."""

import sys

from ttaps.cli import main

if __name__ == "__main__":
    sys.exit(main())
