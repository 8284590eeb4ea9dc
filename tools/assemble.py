"""Write the assembled Lua into ``lua/assembled.json``, unless it is up to date: ``python -m tools.assemble``."""

from __future__ import annotations

import os
import sys

from sbredis.engine._assembled import ASSEMBLED, as_json, assembled

__all__ = ["main"]


def main() -> int:
    text = as_json(assembled())
    if not ASSEMBLED.exists() or ASSEMBLED.read_bytes() != text:
        written = ASSEMBLED.with_suffix(f".{os.getpid()}")
        written.write_bytes(text)
        written.replace(ASSEMBLED)  # another process sees the old file, or the new one
    return 0


if __name__ == "__main__":
    sys.exit(main())
