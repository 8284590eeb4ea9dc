"""The memory allocator of the servers that this room starts.

A server asks its allocator for memory in every call. The servers of Linux distributions are built with jemalloc. The
server of the wheel uses the malloc of the C library, and with that of glibc it takes up to 1.4 times the processor
time. So such a server gets the jemalloc of the machine, if there is one, and otherwise a setting that makes glibc's
malloc faster.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

from sbredis.exceptions import ServerUnsuitableError
from sbredis.servers._binary import ServerBinary

__all__ = ["allocator_variables"]

_log = logging.getLogger("sbredis.servers")
_JEMALLOC: Final = "libjemalloc.so.2"
_TUNABLES: Final = "glibc.malloc.tcache_count=2000"
_CHOSEN_BY_CALLER: Final = ("LD_PRELOAD", "GLIBC_TUNABLES")


def allocator_variables(binary: ServerBinary, library: str = _JEMALLOC) -> Mapping[str, str]:
    """Return the environment variables that give a server the best allocator of this machine.

    There are none if the server brings its own allocator, on systems without glibc, and if this process has variables
    that choose an allocator. ``library`` is the name of jemalloc's library.
    """
    if any(name in os.environ for name in _CHOSEN_BY_CALLER) or not _has_glibc():
        return {}
    try:
        allocator = binary.allocator
    except ServerUnsuitableError:
        return {}  # the start of the server gives the reason
    if allocator != "libc":
        return {}
    if _can_preload(binary.path, library):
        return {"LD_PRELOAD": library}
    return {"GLIBC_TUNABLES": _TUNABLES}


def _has_glibc() -> bool:
    if not sys.platform.startswith("linux"):
        return False
    try:
        return "glibc" in (os.confstr("CS_GNU_LIBC_VERSION") or "")
    except (OSError, ValueError):  # musl does not know the name
        return False


@cache
def _can_preload(program: Path, library: str) -> bool:
    """Whether the dynamic linker loads a library into a program. It lists what it would load, and runs nothing."""
    try:
        listed = subprocess.run(
            [program, "--version"],
            env={**os.environ, "LD_PRELOAD": library, "LD_TRACE_LOADED_OBJECTS": "1"},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=10,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    loads = listed.returncode == 0 and f"{library} => /" in listed.stdout
    if not loads:
        _log.debug("%s uses the malloc of glibc: %s cannot be loaded: %s", program, library, listed.stderr.strip())
    return loads
