"""Starting an embedded server. The caller holds ``owner.lock``."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from sbredis.exceptions import (
    ScriptRefusedError,
    ServerUnsuitableError,
    ServiceBusConnectionError,
    ServiceBusError,
)
from sbredis.servers._allocator import allocator_variables
from sbredis.servers._ask import ask
from sbredis.servers._binary import ServerBinary, find_server
from sbredis.servers._embedded_supervisor import ENDED_WITH, Order
from sbredis.servers._folder import DataFolder, full
from sbredis.servers._locks import FileLock
from sbredis.servers._logs import tail_of
from sbredis.servers._repairing import repair_advice, take_zeros_away
from sbredis.servers._spawn import python_command, python_environment
from sbredis.servers._storing import open_private

__all__ = ["Fsync", "Starter", "answers"]

Fsync: TypeAlias = Literal["everysec", "always"]
"""When a server forces its append-only file to the disk: every second, or before each answer."""

_ORPHAN_GRACE = 3.0
_AGAIN_AFTER = 0.05
_ROOM = 256 * 1024
"""The number of bytes that must be writable before a server is started."""


def answers(socket_path: str) -> bool:
    """Whether a server listens on the socket and has loaded its data."""
    try:
        return ask(socket_path, "PING", timeout=1.0) == "PONG"
    except ScriptRefusedError as error:
        # a server that answers with another error, such as BUSY, has loaded its data
        return error.reply_code != "LOADING"
    except OSError:
        return False


@dataclass(frozen=True)
class Starter:
    """Starts the server of a folder. ``timeout`` is for error texts; deadlines are passed to the methods."""

    folder: DataFolder
    fsync: Fsync
    binary: ServerBinary | str | None
    timeout: float
    linger: float

    def bring_up(self, deadline: float) -> None:
        """Start the server if needed. Returns when it answers. The caller holds ``owner.lock``."""
        while True:
            server = FileLock(self.folder.server_lock, handed_on=True)
            try:
                is_alive = not server.take()
                log_start = 0 if is_alive else self._start(server, deadline)
            finally:
                # Not `drop`: that would release the lock for the embedded supervisor and the server too.
                server.close()
            if is_alive and not self._has_supervisor():
                self._end_orphan(deadline)
            elif log_start is not None and self._wait_for_answer(deadline):
                return
            elif not is_alive:
                self._look_why_it_ended(log_start or 0, deadline)

    def _look_why_it_ended(self, log_start: int, deadline: float) -> None:
        """Raise the reason why the server ended soon after its start, or return if the server may be started again. It
        may be started again if it, or the embedded supervisor, was killed. A server that ends by itself cannot work in
        this state.
        """
        while self._has_supervisor() and time.monotonic() < deadline:
            time.sleep(0.005)  # the embedded supervisor writes into the log how the server ended, and then ends
        self.check_room()
        said = tail_of(self.folder.log, log_start)
        if ENDED_WITH in said:
            raise self._refusal(log_start)
        if time.monotonic() + _AGAIN_AFTER >= deadline:
            raise ServiceBusConnectionError(
                f"The embedded server of {self.folder.path} was killed each time it was started. The end of its log:\n"
                f"{said.strip()}"
            )
        time.sleep(_AGAIN_AFTER)

    def check_room(self) -> None:
        """Raise if the disk is full.

        With ``appendfsync always`` a server ends at the first write that fails, so starting it again does not help. Its
        log cannot contain the reason, because the log is on the same disk.
        """
        about = os.statvfs(self.folder.path)
        if about.f_bavail * about.f_frsize >= _ROOM:
            return
        reason = _no_room(self.folder.path / ".room")
        if reason is not None:
            raise full(self.folder.path, reason)

    def _start(self, server: FileLock, deadline: float) -> int | None:
        """Start an embedded supervisor, and with it a server.

        Returns the position in the log at which their output begins; ``None`` if the embedded supervisor was killed.
        """
        if self.folder.restoring.exists():
            raise ServerUnsuitableError(
                f"A backup was being restored into {self.folder.path}, and this did not finish. Run 'sbredis server"
                f" restore' again. To begin without data instead, remove {self.folder.restoring}."
            )
        self.check_room()
        take_zeros_away(self.folder.path)
        binary = self.binary if isinstance(self.binary, ServerBinary) else find_server(self.binary)
        supervisor = FileLock(self.folder.supervisor_lock, handed_on=True)
        try:
            if not supervisor.take(until=deadline):
                raise ServiceBusConnectionError(
                    f"The previous embedded supervisor of {self.folder.path} has not ended in time."
                )
            self.folder.make_socket_folder()
            self.folder.socket.unlink(missing_ok=True)
            with open_private(self.folder.config, "wb") as config:
                config.write(self._configuration())
            log_start = self.folder.turn_log()
            locks = server.descriptor, supervisor.descriptor
            order = Order(str(self.folder.path), str(binary.path), self.linger, *locks, allocator_variables(binary))
            with open_private(self.folder.log, "ab") as log:
                launched = subprocess.run(
                    [*python_command("_embedded_supervisor"), order.text()],
                    cwd=self.folder.path,
                    env=python_environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(server.descriptor, supervisor.descriptor),
                    start_new_session=True,
                    check=False,
                    timeout=max(1.0, deadline - time.monotonic()),
                )
        except subprocess.TimeoutExpired as error:
            raise ServiceBusConnectionError(
                f"The embedded supervisor of {self.folder.path} did not start within {self.timeout:g} s."
            ) from error
        finally:
            supervisor.close()
        if launched.returncode > 0:
            raise self._refusal(log_start)
        return None if launched.returncode else log_start

    def _configuration(self) -> bytes:
        socket = str(self.folder.socket).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        text = (
            "# Written by sbredis before each start of the server. Changes are lost.\n"
            "port 0\n"
            f'unixsocket "{socket}"\n'
            "unixsocketperm 700\n"
            "daemonize no\n"
            'save ""\n'
            "appendonly yes\n"
            f"appendfsync {self.fsync}\n"
            "maxmemory-policy noeviction\n"
        )
        return text.encode("utf-8", "surrogateescape")

    def _has_supervisor(self) -> bool:
        supervisor = FileLock(self.folder.supervisor_lock, handed_on=True)
        try:
            if not supervisor.take():
                return True
            supervisor.drop()
            return False
        finally:
            supervisor.close()

    def _end_orphan(self, deadline: float) -> None:
        """Wait until a server without an embedded supervisor has ended. Outside Linux, ask it to end."""
        if self._is_gone(min(deadline, time.monotonic() + _ORPHAN_GRACE)):
            return
        with contextlib.suppress(OSError, ScriptRefusedError):  # the server closes the connection when it ends
            ask(str(self.folder.socket), "SHUTDOWN", timeout=5)
        if not self._is_gone(deadline):
            raise ServiceBusConnectionError(
                f"The embedded server of {self.folder.path} has lost its embedded supervisor and has not ended in time."
            )

    def _is_gone(self, deadline: float) -> bool:
        server = FileLock(self.folder.server_lock, handed_on=True)
        try:
            if not server.take(until=deadline):
                return False
            # closing is not enough, because a child that another thread starts may hold the lock for a moment
            server.drop()
            return True
        finally:
            server.close()

    def _wait_for_answer(self, deadline: float) -> bool:
        """Wait until the server answers. Return ``False`` if it has ended instead."""
        pause = 0.002
        while not answers(str(self.folder.socket)):
            if self._is_gone(0.0):
                return False
            if time.monotonic() > deadline:
                raise ServiceBusConnectionError(
                    f"The embedded server of {self.folder.path} is alive, but did not answer within {self.timeout:g} s."
                    f" It may have to load much data. The end of its log:\n{tail_of(self.folder.log, lines=10)}"
                )
            time.sleep(pause)
            pause = min(pause * 1.5, 0.05)
        return True

    def _refusal(self, log_start: int) -> ServiceBusError:
        said = tail_of(self.folder.log, log_start).strip()
        return ServerUnsuitableError(
            f"The embedded server of {self.folder.path} does not start. It said:\n{said}\n(Its log is"
            f" {self.folder.log}.) {repair_advice(self.folder.path)}"
        )


def _no_room(probe: Path) -> str | None:
    """Try to write the file ``probe``. Return why that failed, or ``None`` if it worked."""
    try:
        with open_private(probe, "wb") as file:
            file.write(bytes(_ROOM))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return (error.strerror or str(error)).lower()
    else:
        return None
    finally:
        probe.unlink(missing_ok=True)
