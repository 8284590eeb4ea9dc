"""The embedded server: one real server on a folder. The processes of a machine share it, and none of them owns it.

Four locks of the kernel hold all the state that the processes share. A lock ends when its holder's last descriptor is
closed:

- ``owner.lock``: A process holds it while the process starts or ends the server.
- ``clients.lock``: Every lease holds it as a shared lock. While it is held, at least one client needs the server.
- ``server.lock``: The server holds it through a descriptor that it inherits. While it is held, the server is alive.
- ``supervisor.lock``: The embedded supervisor holds it. While it is held, the embedded supervisor will end the server
  when no client needs the server any more.

Process ids are never written down, so a recycled id cannot be mistaken for the server's. This module decides when the
server must be started, and takes the first two locks for the clients. ``_starting`` starts the server, and
``_embedded_supervisor`` ends it.
"""

from __future__ import annotations

import importlib.util
import os
import time
from types import TracebackType
from typing import Self

from sbredis.exceptions import ScriptRefusedError, ServerUnsuitableError, ServiceBusConnectionError
from sbredis.servers._ask import ask
from sbredis.servers._binary import ServerBinary
from sbredis.servers._folder import DataFolder, open_folder, unusable
from sbredis.servers._locks import FileLock
from sbredis.servers._starting import Fsync, Starter, answers

__all__ = ["EmbeddedLease", "acquire"]


def acquire(
    path: str | os.PathLike[str],
    *,
    fsync: Fsync = "everysec",
    binary: ServerBinary | str | None = None,
    timeout: float = 30.0,
    linger: float = 2.0,
) -> EmbeddedLease:
    """Take a lease of the embedded server of a folder. Start the server if it does not run. Returns when it answers.

    The folder is made if it does not exist, accessible to this user only. ``fsync`` says when the server's append-only
    file is forced to the disk: each second, or before each answer. The first client that asks for ``"always"`` switches
    a running server to this setting. The server then keeps the setting until it ends. ``binary`` (see
    :func:`~sbredis.servers.find_server`) is the server program. ``linger`` is the number of seconds that the server
    stays after its last client. ``binary`` and ``linger`` are used only if this call starts the server. ``timeout``
    bounds this call and each :meth:`EmbeddedLease.ensure_running`.

    Raises :class:`~sbredis.exceptions.ServerUnsuitableError` if the folder cannot be used or the server refuses to
    start, with the end of its log; :class:`~sbredis.servers.ServerNotFoundError` if there is no server program; and
    :class:`~sbredis.exceptions.ServiceBusConnectionError` if it does not answer in time.
    """
    if not _has_file_locks():
        raise ServerUnsuitableError(
            "embedded:// is not available on this system, which has no file locks (fcntl). Run a server elsewhere and"
            " connect with redis://HOST:PORT, or use memory://NAME in tests."
        )
    folder = open_folder(path)
    return EmbeddedLease(folder, Starter(folder, fsync, binary, timeout, linger))


def _has_file_locks() -> bool:
    try:
        return importlib.util.find_spec("fcntl") is not None
    except ValueError:  # find_spec raises ValueError if sys.modules has None for the module
        return False


class EmbeddedLease:
    """The right to use an embedded server, made by :func:`acquire`. The server stays as long as a lease is held.

    The lease ends with :meth:`release`, or when this process ends in any way. It is a file lock. A forked child holds
    the lock too, until the child ends or runs another program. All methods may be called from any thread. As a context
    manager, the lease is released at the end of the block.
    """

    def __init__(self, folder: DataFolder, starter: Starter) -> None:
        self._folder = folder
        self._starter = starter
        self._clients: FileLock | None = None
        try:
            self._ensure(look_first=False)
        except BaseException:
            self.release()
            raise

    @property
    def socket_path(self) -> str:
        """The path of the server's unix socket. It stays the same when the server is started again."""
        return str(self._folder.socket)

    def ensure_running(self) -> None:
        """Start the server if it has ended. Returns when it runs, with at least the ``fsync`` of this lease.

        Call this before every reconnect. A new server loads the data that a killed one had stored. Raises the same
        errors as :func:`acquire`.
        """
        clients = self._clients
        if clients is None:
            raise ServiceBusConnectionError("This lease of an embedded server was released.", is_transient=False)
        if not clients.is_current():
            raise ServerUnsuitableError(f"The folder {self._folder.path} was removed or replaced while it was in use.")
        self._ensure(look_first=True)

    def release(self) -> None:
        """Release the lease. A second call does nothing."""
        clients, self._clients = self._clients, None
        if clients is not None:
            clients.close()  # not dropped, because a forked child or the parent may still hold the lock

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _ensure(self, *, look_first: bool) -> None:
        deadline = time.monotonic() + self._starter.timeout
        try:
            while True:
                if not (look_first and answers(self.socket_path)):
                    self._with_owner_lock(deadline)
                if self._raise_fsync(deadline):
                    return
                look_first = True
        except OSError as error:
            raise unusable(self._folder.path, error) from error

    def _with_owner_lock(self, deadline: float) -> None:
        """Take the lock of the lease if it has none, and start the server if it does not run. Meanwhile ``owner.lock``
        keeps other processes from doing the same.
        """
        while True:
            owner = FileLock(self._folder.owner_lock)
            try:
                if not owner.take(until=deadline):
                    raise ServiceBusConnectionError(
                        f"Another process has been starting or ending the embedded server of {self._folder.path} for"
                        f" {self._starter.timeout:g} s."
                    )
                try:
                    if owner.is_current():
                        self._take_lease(deadline)
                        self._starter.bring_up(deadline)
                        return
                finally:
                    owner.drop()  # a child that another thread has forked since must not keep the lock
            finally:
                owner.close()
            open_folder(self._folder.path)  # the folder was removed after the lock file was opened

    def _take_lease(self, deadline: float) -> None:
        if self._clients is not None:
            return
        clients = FileLock(self._folder.clients_lock)
        # Only the embedded supervisor takes this lock exclusively. It holds the lock for a moment, to see if clients
        # are left. It keeps the lock only while it holds owner.lock too, to end the server.
        if not clients.take(shared=True, until=deadline):
            clients.close()
            raise ServiceBusConnectionError(f"{self._folder.clients_lock} is locked by a program other than sbredis.")
        self._clients = clients

    def _raise_fsync(self, deadline: float) -> bool:
        """Return False if the server has just ended, so that it must be started again."""
        if self._starter.fsync != "always":
            return True
        try:
            if ask(self.socket_path, "CONFIG", "GET", "appendfsync") != ["appendfsync", "always"]:
                ask(self.socket_path, "CONFIG", "SET", "appendfsync", "always")
            return True
        except (OSError, ScriptRefusedError) as error:
            if isinstance(error, OSError) and time.monotonic() < deadline and not answers(self.socket_path):
                return False
            raise ServiceBusConnectionError(
                f"The embedded server of {self._folder.path} did not accept the setting appendfsync=always: {error}"
            ) from error
