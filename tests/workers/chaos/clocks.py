"""Servers whose clocks a test sets, each one by itself.

The library libfaketime tells a program another time of day. Its file is given by name, because no other test needs it.
The monotonic clock of a server stays true, and so do the clocks of the clients.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from sbredis.servers import LocalServer, find_server

__all__ = ["Clocks"]


class Clocks:
    """The clocks of servers that are started by :attr:`program`."""

    def __init__(self, library: Path, binary: str | None, folder: Path) -> None:
        self._folder = folder
        self._behind: dict[int, float] = {}
        """How far the clocks are behind the true time, by the processes of the servers."""
        self.program = folder / "server"
        """Starts a server whose clock can be set. Its process keeps its id."""
        settings = f"FAKETIME_TIMESTAMP_FILE={shlex.quote(str(folder))}/clock-$$ FAKETIME_NO_CACHE=1"
        self.program.write_text(
            f"#!/bin/sh\necho +0 > {shlex.quote(str(folder))}/clock-$$\n"
            f"export LD_PRELOAD={shlex.quote(str(library.absolute()))} {settings} FAKETIME_DONT_FAKE_MONOTONIC=1\n"
            f'exec {shlex.quote(str(find_server(binary).path))} "$@"\n'
        )
        self.program.chmod(0o700)

    def set_back(self, server: LocalServer, seconds: float) -> None:
        """Set the clock of a server back by this time."""
        self._behind[server.pid] = behind = self._behind.get(server.pid, 0.0) + seconds
        file = self._folder / f"clock-{server.pid}"
        new = file.with_name(f"{file.name}.new")
        new.write_text(f"-{behind:.3f}\n")
        new.replace(file)
