"""``python -m sbredis.cli`` is the command ``sbredis``."""

from __future__ import annotations

import sys

from sbredis.cli import main

if __name__ == "__main__":
    sys.exit(main())
