"""The embedded server: one real server on a folder, shared by the processes of a machine, owned by none.

Four locks of the kernel, which are dropped with the last descriptor of their holder, say all there is to know:

- ``owner.lock``: held by whoever starts or ends the server, for that moment;
- ``clients.lock``: held, shared, by every lease: somebody needs the server;
- ``server.lock``: held by the server, through a descriptor it inherits: it is alive;
- ``supervisor.lock``: held by its supervisor: somebody will end it when it is not needed any more.

Process ids are never written down, so none can be mistaken for another's. This module decides when the server must be
started, and is the clients' side of the first two locks; ``_starting`` starts it, and ``_embedded_supervisor`` ends it.
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
    """Take a share of the embedded server of a folder, starting it if it does not run. Returns when it answers.

    The folder is made if it is not there, accessible to this user only. ``fsync`` is when the server's append-only file
    is forced to the disk: each second, or before each answer. A running server is raised to ``"always"`` by the first
    who wants that, and not lowered again while it runs. ``binary`` (see :func:`~sbredis.servers.find_server`) and
    ``linger``, the seconds that the server stays after its last client, count for who happens to start it. ``timeout``
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
    except ValueError:  # it stands in sys.modules as None
        return False


class EmbeddedLease:
    """A share of an embedded server, made by :func:`acquire`: the server stays as long as somebody holds one.

    The share ends with :meth:`release`, and with this process however it dies. It is a file lock: a child made by fork
    (not one that runs another program) holds it along with its parent for as long as it lives. All methods may be
    called from any thread. As a context manager it is released at the end.
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
        """The path of the server's unix socket. It stays the same when the server is started anew."""
        return str(self._folder.socket)

    def ensure_running(self) -> None:
        """Return when the server runs, with at least the ``fsync`` of this lease; start it if it is gone.

        To be called before every reconnect: what a killed server had kept, the new one loads. Raises as :func:`acquire`
        does.
        """
        clients = self._clients
        if clients is None:
            raise ServiceBusConnectionError("This lease of an embedded server was released.", is_transient=False)
        if not clients.is_current():
            raise ServerUnsuitableError(f"The folder {self._folder.path} was removed or replaced while it was in use.")
        self._ensure(look_first=True)

    def release(self) -> None:
        """Give the share back. Nothing happens the second time."""
        clients, self._clients = self._clients, None
        if clients is not None:
            clients.close()  # and not dropped: that would take it from a forked child or parent as well

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _ensure(self, *, look_first: bool) -> None:
        try:
            if not (look_first and answers(self.socket_path)):
                self._with_owner_lock(time.monotonic() + self._starter.timeout)
            self._raise_fsync()
        except OSError as error:
            raise unusable(self._folder.path, error) from error

    def _with_owner_lock(self, deadline: float) -> None:
        """Take the share, if that was not done, and start the server if need be, while nobody else does or ends it."""
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
                        self._take_share(deadline)
                        self._starter.bring_up(deadline)
                        return
                finally:
                    owner.drop()  # a child that another thread forks meanwhile must not go on holding it
            finally:
                owner.close()
            open_folder(self._folder.path)  # it was removed between opening and locking

    def _take_share(self, deadline: float) -> None:
        if self._clients is not None:
            return
        clients = FileLock(self._folder.clients_lock)
        # Nobody but the supervisor ever wants it for itself: for as long as a look takes, or to the end, under
        # owner.lock.
        if not clients.take(shared=True, until=deadline):
            clients.close()
            raise ServiceBusConnectionError(f"{self._folder.clients_lock} is locked by something that is not sbredis.")
        self._clients = clients

    def _raise_fsync(self) -> None:
        if self._starter.fsync != "always":
            return
        try:
            if ask(self.socket_path, "CONFIG", "GET", "appendfsync") != ["appendfsync", "always"]:
                ask(self.socket_path, "CONFIG", "SET", "appendfsync", "always")
        except (OSError, ScriptRefusedError) as error:
            raise ServiceBusConnectionError(
                f"The embedded server of {self._folder.path} did not take fsync=always: {error}"
            ) from error
