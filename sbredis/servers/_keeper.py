"""Keeping a server on a folder alive without clients: a process of its own holds a lease of it until it is told to end.

The keeper holds a lock in the folder for as long as it lives, and writes there under which address its server can be
used. So a keeper that was killed is not mistaken for one that lives, and a recycled process id not for the keeper's.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import quote

from sbredis.exceptions import ScriptRefusedError, ServerUnsuitableError
from sbredis.servers._ask import ask
from sbredis.servers._cluster import LocalCluster
from sbredis.servers._embedded import EmbeddedLease, acquire
from sbredis.servers._folder import open_folder
from sbredis.servers._locks import FileLock
from sbredis.servers._logs import tail_of
from sbredis.servers._spawn import python_command, python_environment
from sbredis.servers._storing import open_private

__all__ = ["KeptServer", "ServerOrder", "find_kept", "keep", "start_kept", "stop_kept"]

_LOCK, _FACTS, _LOG = ".keeper.lock", ".keeper.json", ".keeper.log"
"""Files in the folder. Hidden files in a folder do not keep an embedded server from using it."""
_LINGER = 0.5
_PERIOD = 1.0  # seconds between two looks at whether the server runs
_STEP = 0.05
_STARTING, _ENDING = 60.0, 30.0


@dataclass(frozen=True, slots=True)
class KeptServer:
    """A server or cluster that a keeper keeps."""

    folder: str
    pid: int
    """The process id of the keeper."""
    url: str
    """The connection string."""
    nodes: int = 1
    """The number of servers."""
    address: str = ""
    """The socket or the port of a server."""

    def information(self) -> dict[str, str]:
        """Return what the server says about itself (``INFO``); nothing if it does not answer."""
        port = self.address.isdigit()
        try:
            said = str(ask(("127.0.0.1", int(self.address)) if port else self.address, "INFO", timeout=2.0))
        except (OSError, ScriptRefusedError):
            return {}
        pairs = (line.partition(":") for line in said.splitlines() if ":" in line)
        return {name: value for name, _, value in pairs}


@dataclass(frozen=True, slots=True)
class ServerOrder:
    """What to keep: a server, with ``port`` also on the loopback address, or a cluster."""

    folder: str
    port: int | None = None
    masters: int = 0
    replicas: int = 0


def find_kept(folder: str | os.PathLike[str]) -> KeptServer | None:
    """Return the server that is kept on a folder; ``None`` if there is none, or if it is still starting."""
    path = Path(os.path.realpath(folder))
    if not (path / _LOCK).exists() or _is_free(path):
        return None
    try:
        return KeptServer(**json.loads((path / _FACTS).read_text("utf-8")))
    except FileNotFoundError:
        return None


def start_kept(
    folder: str | os.PathLike[str], *, port: int | None = None, masters: int = 0, replicas: int = 0
) -> KeptServer:
    """Start a server on a folder that stays without clients until :func:`stop_kept`. Returns when it can be used.

    ``port`` lets it listen on 127.0.0.1 too. With ``masters`` it is a cluster, which keeps no data. Raises
    :class:`~sbredis.exceptions.ServerUnsuitableError` if one is kept there already, or if it does not start.
    """
    path = open_folder(folder).path
    with _locked(path):
        (path / _FACTS).unlink(missing_ok=True)  # of a keeper that was killed
    order = json.dumps(asdict(ServerOrder(str(path), port, masters, replicas)))
    log = path / _LOG
    log.unlink(missing_ok=True)
    with open_private(log, "ab") as written:
        subprocess.run(
            [*python_command("_keeper"), order],
            env=python_environment(),
            stdin=subprocess.DEVNULL,
            stdout=written,
            stderr=written,
            start_new_session=True,
            check=True,
        )
    until = time.monotonic() + _STARTING
    while time.monotonic() < until:
        if (found := find_kept(path)) is not None:
            return found
        if (said := tail_of(log, 0).strip()) and _is_free(path):
            raise ServerUnsuitableError(said.splitlines()[-1])
        time.sleep(_STEP)
    raise ServerUnsuitableError(f"The server on {path} did not start within {_STARTING:g} s.\n{tail_of(log, 0)}")


def stop_kept(folder: str | os.PathLike[str]) -> KeptServer | None:
    """End the keeper of a folder, and return what it kept; ``None`` if there is none.

    An embedded server ends when its last client has left. Its data stay.
    """
    found = find_kept(folder)
    if found is None:
        return None
    path = Path(found.folder)
    _terminate(found.pid, lambda: not _is_free(path))
    lock = FileLock(path / _LOCK)
    try:
        if not lock.take(until=time.monotonic() + _ENDING):
            raise ServerUnsuitableError(f"The keeper of {path}, process {found.pid}, has not ended in {_ENDING:g} s.")
    finally:
        lock.close()
    return found


def keep(order: ServerOrder, ready: Callable[[KeptServer], None]) -> None:
    """Keep a server until this process gets SIGTERM or SIGINT. ``ready`` is called when it can be used.

    Must be called in the main thread.
    """
    path = open_folder(order.folder).path
    with _locked(path):
        facts = path / _FACTS
        facts.unlink(missing_ok=True)  # of a keeper that was killed
        ended: list[int] = []
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, lambda number, _: ended.append(number))
        with _kept_cluster(order) if order.masters else _kept_server(order) as (found, look):
            made = path / f"{_FACTS}.new"
            with open_private(made, "wb") as file:
                file.write(json.dumps(asdict(found)).encode())
            made.replace(facts)
            try:
                ready(found)
                looked = time.monotonic()
                while not ended:
                    time.sleep(_STEP)
                    if time.monotonic() - looked >= _PERIOD:
                        look()
                        looked = time.monotonic()
            finally:
                facts.unlink(missing_ok=True)


def main() -> None:
    """Keep the server that the first argument describes. The first process returns at once."""
    order = ServerOrder(**json.loads(sys.argv[1]))
    if os.fork():
        os._exit(0)  # so the process that starts the keeper need not wait for it
    try:
        keep(order, lambda _: None)
    except Exception as error:  # noqa: BLE001 -- the text is for the process that waits
        print(getattr(error, "message", str(error)).replace("\n", " "), flush=True)  # noqa: T201 -- its output is the log


@contextmanager
def _kept_server(order: ServerOrder) -> Generator[tuple[KeptServer, Callable[[], None]]]:
    with acquire(order.folder, linger=_LINGER) as lease:

        def look() -> None:
            lease.ensure_running()
            if order.port is not None:
                _listen(lease, order.port)

        look()
        url = f"embedded://{quote(order.folder)}" if order.port is None else f"redis://127.0.0.1:{order.port}"
        yield KeptServer(order.folder, os.getpid(), url, address=lease.socket_path), look


def _listen(lease: EmbeddedLease, port: int) -> None:
    """Let the server listen on the loopback address, unless it does already."""
    if ask(lease.socket_path, "CONFIG", "GET", "port") == ["port", str(port)]:
        return
    try:
        ask(lease.socket_path, "CONFIG", "SET", "bind", "127.0.0.1")
        ask(lease.socket_path, "CONFIG", "SET", "port", str(port))
    except ScriptRefusedError as error:
        raise ServerUnsuitableError(f"The server cannot listen on port {port}: {error.detail}") from error


@contextmanager
def _kept_cluster(order: ServerOrder) -> Generator[tuple[KeptServer, Callable[[], None]]]:
    with LocalCluster(order.masters, order.replicas) as cluster:
        found = KeptServer(
            order.folder, os.getpid(), cluster.url, len(cluster.nodes), address=str(cluster.nodes[0].port)
        )
        yield found, lambda: None


@contextmanager
def _locked(path: Path) -> Generator[None]:
    """Hold the lock of a keeper. Raise if a keeper lives."""
    lock = FileLock(path / _LOCK)
    try:
        if not lock.take():
            raise _taken(path)
        yield
    finally:
        lock.close()


def _is_free(path: Path) -> bool:
    """Whether no keeper lives."""
    lock = FileLock(path / _LOCK)
    try:
        return lock.take(shared=True)
    finally:
        lock.close()


def _taken(path: Path) -> ServerUnsuitableError:
    found = find_kept(path)
    where = f": {found.url}" if found is not None else ""
    return ServerUnsuitableError(f"A server is kept on {path} already{where}. 'stop' ends it.")


def _terminate(pid: int, still: Callable[[], bool]) -> None:
    """Send SIGTERM to a process, if ``still`` is true once the process id cannot be recycled any more."""
    if not hasattr(os, "pidfd_open"):
        os.kill(pid, signal.SIGTERM)
        return
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if still():
            signal.pidfd_send_signal(handle, signal.SIGTERM)
    finally:
        os.close(handle)
