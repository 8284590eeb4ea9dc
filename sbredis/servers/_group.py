"""Several local servers that belong together, and start and stop as one: a cluster, or a master with sentinels."""

from __future__ import annotations

import shutil
import tempfile
from abc import abstractmethod
from pathlib import Path

from sbredis.exceptions import ServerUnsuitableError
from sbredis.servers._binary import ServerBinary, find_server
from sbredis.servers._local import LocalServer, Startable
from sbredis.servers._supervisor_client import supervisor

__all__ = ["LocalGroup"]

_TRIES = 5


class LocalGroup(Startable):
    """Several servers that belong together, in one temporary directory."""

    def __init__(self, binary: ServerBinary | str | None) -> None:
        self._binary = binary
        self._directory: Path | None = None

    @property
    def _program(self) -> ServerBinary:
        return self._binary if isinstance(self._binary, ServerBinary) else find_server(self._binary)

    @abstractmethod
    def _members(self) -> list[LocalServer]:
        """All current servers, in the order in which they are ended."""

    @abstractmethod
    def _make_members(self, binary: ServerBinary, directory: Path) -> None:
        """Make all servers, without starting them."""

    @abstractmethod
    def _drop_members(self) -> None:
        """Forget all servers after they have ended."""

    @abstractmethod
    def _launch(self) -> bool:
        """Start all servers. Return ``False`` if another process has taken the port of a server."""

    @abstractmethod
    def wait_until_ok(self, timeout: float = 30.0) -> None:
        """Wait until the live servers work together."""

    def start(self) -> None:
        """Start all servers, and wait as :meth:`wait_until_ok` does.

        Raises :class:`~sbredis.exceptions.ServerUnsuitableError` if they do not begin to work together in time.
        """
        if self._members():
            return
        program = self._program
        try:
            for _ in range(_TRIES):
                self._directory = Path(tempfile.mkdtemp(dir=supervisor().directory))
                self._make_members(program, self._directory)
                if self._launch():
                    self.wait_until_ok()
                    return
                self.stop()
        except BaseException:
            self.stop()
            raise
        raise ServerUnsuitableError("No free ports were found for local servers.")

    def stop(self) -> None:
        """End all servers and remove their data."""
        for server in self._members():
            server.kill()
        self._drop_members()
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None
