"""Cutting off the zeros that a loss of power may leave at the end of an append-only file.

A file system may have stored the new length of a file before its new content. Then the file ends with zeros, which no
server wrote. Every complete entry of an append-only file ends with a carriage return and a line feed. So zeros at the
end are no part of a complete entry, and cutting them off loses nothing that could be read. Without the zeros, the file
is complete, or it ends in the middle of an entry. The server itself drops such an entry. This module repairs no other
damage.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from sbredis.servers._data_files import DIRECTORY, MANIFEST, read_manifest

__all__ = ["take_zeros_away"]

_log = logging.getLogger("sbredis.servers")
_BLOCK = 65536


def take_zeros_away(folder: Path) -> int:
    """Cut zeros off the end of the data of a server that does not run. Return the number of zeros."""
    path = _newest_increment(folder / DIRECTORY)
    if path is None:
        return 0
    with path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        end = _end_without_zeros(file.fileno(), size)
        if end == size:
            return 0
        file.truncate(end)
        os.fsync(file.fileno())
    _log.warning(
        "%s ended with %d zero bytes, which a loss of power can leave. They were removed; no entry contained them.",
        *(path, size - end),
    )
    return size - end


def _newest_increment(folder: Path) -> Path | None:
    """Return the file to which the server wrote; ``None`` if there is none, or if the manifest cannot be read."""
    manifest = folder / MANIFEST
    try:
        found = read_manifest(manifest, manifest.read_text("utf-8", "surrogateescape")).last
    except (FileNotFoundError, ValueError):
        return None  # the server says what is wrong
    return found if found is not None and found.is_file() else None


def _end_without_zeros(descriptor: int, size: int) -> int:
    """Return the position at which the zeros at the end of a file begin."""
    end = size
    while end:
        start = max(0, end - _BLOCK)
        kept = os.pread(descriptor, end - start, start).rstrip(b"\0")
        if kept:
            return start + len(kept)
        end = start
    return 0
