"""The embedded supervisor: the parent process of an embedded server. It ends the server when no client needs it.

A client that has taken the locks starts it with one argument, a JSON object (:class:`Order`). The embedded supervisor
inherits the taken locks ``server.lock`` and ``supervisor.lock``, and a log as its standard output. It hands
``server.lock`` on to the server and keeps ``supervisor.lock``. From then on it depends on no client: it runs in a
session of its own, and the process that started it has ended.

It looks at ``clients.lock`` a few times a second. When that lock has been free for a while, it takes ``owner.lock``, so
that no client can take a lease while the server is ended. Then it looks at ``clients.lock`` once more, and ends the
server. When the server ends by itself, the embedded supervisor ends too. When the embedded supervisor is killed, the
kernel tells the server to end (Linux), and the server shuts down cleanly.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from sbredis.servers._folder import DataFolder
from sbredis.servers._locks import FileLock
from sbredis.servers._spawn import dies_with_parent, server_environment

__all__ = ["ENDED_WITH", "Order", "main"]

ENDED_WITH = "# sbredis: the server ended by itself, with exit code"
"""The text in front of the exit code in the log. The embedded supervisor writes it if no signal ended the server."""

_END_TIMEOUT = 30.0
"""Seconds that a server may take to end, because it may have to write much data to the disk."""

_DEFECT = 126
"""The exit code that is logged for a server that could not even be run."""

_BIND_TIMEOUT = 10.0
"""Seconds that a server may take to make its socket. It makes the socket before it loads any data."""


@dataclass(frozen=True)
class Order:
    """The order for an embedded supervisor: the server to run, and how."""

    folder: str
    program: str
    linger: float
    server_lock: int
    supervisor_lock: int
    environment: Mapping[str, str]
    """Variables for the server alone."""

    def text(self) -> str:
        """Return the order as text, as it is passed to the embedded supervisor's process."""
        return json.dumps(asdict(self))


def main() -> None:
    """Start the server that the first argument describes, and return at once.

    The embedded supervisor continues in its own process.
    """
    order = Order(**json.loads(sys.argv[1]))
    if os.fork():
        os._exit(0)  # so the client that starts the embedded supervisor need not wait for it
    try:
        _EmbeddedSupervisor(order).keep()
    except Exception:
        print(f"{ENDED_WITH} {_DEFECT}", flush=True)  # noqa: T201  # its output is the log
        raise


def _wake(*_: object) -> None:
    """Do nothing: the signal only has to end the wait."""


class _EmbeddedSupervisor:
    def __init__(self, order: Order) -> None:
        self._linger = order.linger
        self._folder = DataFolder(Path(order.folder))
        self._asked_to_end = False
        self._wake_reader, wake_writer = os.pipe()
        os.set_blocking(self._wake_reader, False)
        os.set_blocking(wake_writer, False)
        signal.set_wakeup_fd(wake_writer)
        signal.signal(signal.SIGCHLD, _wake)
        signal.signal(signal.SIGTERM, self._on_terminate)
        self._server = subprocess.Popen(
            [order.program, str(self._folder.config)],
            cwd=self._folder.path,
            env={**server_environment(), **order.environment},
            stdin=subprocess.DEVNULL,
            pass_fds=(order.server_lock,),
            preexec_fn=dies_with_parent(signal.SIGTERM),  # noqa: PLW1509 - this process has one thread
            umask=0o077,
        )
        os.close(order.server_lock)  # from here on, only the server holds this lock

    def keep(self) -> None:
        clients = FileLock(self._folder.clients_lock)
        owner = FileLock(self._folder.owner_lock)
        free_since: float | None = None
        pause = min(0.25, max(self._linger / 4, 0.01))
        binds_until = time.monotonic() + _BIND_TIMEOUT
        listened = False
        while not self._has_ended(pause if listened else 0.005):
            listened = listened or self._folder.socket.exists()
            if not self._folder.socket.exists() and (listened or time.monotonic() > binds_until):
                break  # the socket or the whole folder was removed, so no client can reach the server any more
            if self._asked_to_end:
                break
            if not clients.take():
                free_since = None
                continue
            clients.drop()
            free_since = free_since or time.monotonic()
            if time.monotonic() - free_since >= self._linger and owner.take():
                if clients.take():
                    self._end()
                    with contextlib.suppress(OSError):
                        if self._folder.socket.parent != self._folder.path:
                            self._folder.socket.parent.rmdir()
                    return  # both locks end with this process, which ends now
                owner.drop()
        code = self._server.poll()
        if code is not None and code > 0:
            print(f"{ENDED_WITH} {code}", flush=True)  # noqa: T201  # its output is the log
        self._end()

    def _has_ended(self, wait: float) -> bool:
        if select.select([self._wake_reader], [], [], wait)[0]:
            os.read(self._wake_reader, 4096)
        return self._server.poll() is not None

    def _end(self) -> None:
        self._server.terminate()
        try:
            self._server.wait(_END_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()

    def _on_terminate(self, *_: object) -> None:
        self._asked_to_end = True
