"""Filters the standard error of a program: it removes the warnings that every test server causes."""

from __future__ import annotations

import re

__all__ = ["complaints"]

_KEEPS_NOTHING = re.compile(r"durability=master on .*a crash of the server loses everything since its last snapshot")
"""The test servers write no append-only file, and clients warn about that."""


def complaints(stderr: str) -> str:
    """Return the lines of standard error without the warnings about a server that does not persist data."""
    return "".join(line for line in stderr.splitlines(keepends=True) if not _KEEPS_NOTHING.match(line))
