"""A local server on the loopback address, for tests, benchmarks and demonstrations."""

from __future__ import annotations

import shutil
import signal
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TypeAlias

from sbredis.exceptions import ScriptRefusedError, ServerUnsuitableError
from sbredis.servers._allocator import allocator_variables
from sbredis.servers._ask import Address, Reply, ask
from sbredis.servers._binary import ServerBinary, find_server
from sbredis.servers._data_files import DIRECTORY
from sbredis.servers._logs import tail_of
from sbredis.servers._ports import free_port
from sbredis.servers._repairing import repair_advice
from sbredis.servers._supervisor_client import SupervisorClient, supervisor

__all__ = ["LocalServer", "Settings", "Startable"]

Settings: TypeAlias = Mapping[str, str | Sequence[str]]
"""The lines of a server's configuration file, as a mapping from a key to its value. Several values give several lines
with the same key.
"""

_SIGKILL = 9  # on Windows the signal module has no SIGKILL, and this module can still be imported

START_TIMEOUT = 30.0
_ADDRESS_TAKEN = "Address already in use"


class Startable(ABC):
    """A server or group of servers that runs from :meth:`start` to :meth:`stop`, or as long as a ``with`` block."""

    @abstractmethod
    def start(self) -> None:
        """Start the server or the group. Returns when it can be used."""

    @abstractmethod
    def stop(self) -> None:
        """End the server or the group, and remove its files."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class LocalServer(Startable):
    """One Redis or Valkey server on 127.0.0.1. It ends at the latest when this process ends, even if the process is
    killed.

    ``binary`` is an argument or a result of :func:`~sbredis.servers.find_server`. ``config`` adds lines to the
    configuration file or replaces them. By default the server stores nothing on disk (``save ""``, ``appendonly no``)
    and permits DEBUG to local clients. ``directory`` is the server's working directory; without it, a temporary one is
    made, and :meth:`stop` removes it. With ``unix_socket`` the server listens on a unix socket and on no port.

    Use it as a context manager, or call :meth:`start` and :meth:`stop`. The port is chosen at the first start and kept.
    Do not share it between threads without a lock, and do not use it in a forked child.
    """

    def __init__(
        self,
        *,
        binary: ServerBinary | str | None = None,
        config: Settings | None = None,
        directory: Path | None = None,
        unix_socket: bool = False,
    ) -> None:
        self._binary = binary
        self._config: dict[str, str | Sequence[str]] = {key.lower(): value for key, value in (config or {}).items()}
        self._given_directory = directory
        self._directory: Path | None = directory.absolute() if directory is not None else None
        self._unix_socket = unix_socket
        self._socket_path: Path | None = None
        self._port = 0
        self._supervisor: SupervisorClient | None = None
        self._pid: int | None = None
        self._log_start = 0

    # -- addresses and paths

    @property
    def host(self) -> str:
        """Always ``127.0.0.1``."""
        return "127.0.0.1"

    @property
    def port(self) -> int:
        """The port that the server listens on; 0 before the first start, and for a unix socket."""
        return self._port

    @property
    def address(self) -> Address:
        """Host and port, or the path of the unix socket."""
        return str(self._socket_path) if self._socket_path is not None else (self.host, self._port)

    @property
    def url(self) -> str:
        """The connection string: ``redis://127.0.0.1:PORT`` or ``unix:///PATH``."""
        return f"unix://{self._socket_path}" if self._socket_path is not None else f"redis://{self.host}:{self._port}"

    @property
    def pid(self) -> int:
        """The process id of the server, from its last start."""
        if self._pid is None:
            raise RuntimeError("this server was not started")
        return self._pid

    @property
    def directory(self) -> Path:
        """The working directory: configuration, log and data."""
        if self._directory is None:
            raise RuntimeError("this server was not started, or was stopped and its temporary directory removed")
        return self._directory

    # -- starting and stopping

    def start(self) -> None:
        """Start the server. Returns when it answers and has loaded its data. Does nothing if it runs.

        Raises :class:`~sbredis.exceptions.ServerUnsuitableError` with the end of the log if it does not start.
        """
        if self.is_alive():
            return
        for _ in range(5):
            self.launch()
            if self.await_ready():
                return
            self._choose_ports()  # another process has taken the port since it was chosen
        raise ServerUnsuitableError(f"No free port was found for {self._described()}")

    def stop(self) -> None:
        """End the server, and remove its directory if that is a temporary one. Does nothing if it does not run.

        A server with a given directory is shut down cleanly, so that its data are on disk.
        """
        if self._supervisor is not None and self._pid is not None:
            if self._given_directory is not None:
                self._supervisor.signal(self._pid, signal.SIGTERM)
                self._supervisor.signal(self._pid, signal.SIGCONT)
                self._supervisor.wait(self._pid, 10)
            self._supervisor.signal(self._pid, _SIGKILL)
            self._supervisor.wait(self._pid, 10)
        if self._given_directory is None and self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    def restart(self) -> None:
        """Start the server again on the same port, with its data from the disk. If it runs, it is first shut down
        cleanly.
        """
        if self.is_alive():
            self.kill(signal.SIGTERM)
        self.start()

    def kill(self, sig: int = _SIGKILL) -> None:
        """Send the server a signal. If the signal is SIGKILL or SIGTERM, wait until the server has exited."""
        if self._supervisor is None or self._pid is None:
            return
        self._supervisor.signal(self._pid, sig)
        if sig in (_SIGKILL, signal.SIGTERM) and self._supervisor.wait(self._pid, 30) is None:
            raise ServerUnsuitableError(
                f"{self._described()} did not end within 30 s of signal {sig}.\n{self.log_tail()}"
            )

    def pause(self) -> None:
        """Stop the server's process (SIGSTOP). Connections stay open, and no call is answered until :meth:`resume`."""
        self.kill(signal.SIGSTOP)

    def resume(self) -> None:
        """Let the server's process continue after :meth:`pause`."""
        self.kill(signal.SIGCONT)

    def is_alive(self) -> bool:
        """Whether the server's process exists. A paused process exists too."""
        return self._supervisor is not None and self._pid is not None and self._supervisor.exit_code(self._pid) is None

    # -- commands

    def ask(self, *arguments: str | int, timeout: float = 5.0) -> Reply:
        """Send one command on a new connection, with the password that ``config`` sets, and return the answer.

        Raises :class:`~sbredis.exceptions.ScriptRefusedError` for an error reply and :class:`OSError` if there is
        no answer.
        """
        password = self._config.get("requirepass")
        return ask(self.address, *arguments, timeout=timeout, password=password if isinstance(password, str) else None)

    def log_tail(self, lines: int = 20) -> str:
        """Return the last lines that the server wrote to its log since its start."""
        return tail_of(self._log, self._log_start, lines) if self._directory is not None else ""

    # -- the steps of starting: a cluster takes each step for all of its nodes at once

    def _choose_ports(self) -> None:
        if not self._unix_socket:
            self._port = free_port()

    def _settings(self) -> dict[str, str | Sequence[str]]:
        settings: dict[str, str | Sequence[str]] = {
            "bind": self.host,
            "port": str(self._port),
            "save": '""',
            "appendonly": "no",
            "daemonize": "no",
            "enable-debug-command": "local",
            # in tests, all replicas connect at once, so the master need not wait for more replicas
            "repl-diskless-sync-delay": "0",
            "shutdown-timeout": "0",  # at its end, the server does not wait for a paused replica
        }
        if self._socket_path is not None:
            settings["unixsocket"] = f'"{self._socket_path}"'
        return settings

    def _write_config(self) -> None:
        lines: list[str] = []
        for key, values in (self._settings() | self._config).items():
            lines += [f"{key} {value}\n" for value in ([values] if isinstance(values, str) else values)]
        self._config_file.write_text("".join(lines))

    def _command(self) -> list[str]:
        return [str(self._program.path), str(self._config_file)]

    @property
    def _config_file(self) -> Path:
        return self.directory / "server.conf"

    @property
    def _program(self) -> ServerBinary:
        if not isinstance(self._binary, ServerBinary):
            self._binary = find_server(self._binary)
        return self._binary

    @property
    def _log(self) -> Path:
        return self.directory / "server.log"

    def prepare(self) -> None:
        """Choose directory and ports, unless an earlier start did so."""
        self._supervisor = supervisor()
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(dir=self._supervisor.directory))
        self._directory.mkdir(parents=True, exist_ok=True)
        if self._unix_socket and (self._socket_path is None or not self._socket_path.parent.is_dir()):
            # The socket is not in the directory, because a socket's path has at most 108 bytes, and a given directory
            # may have a longer path.
            self._socket_path = Path(tempfile.mkdtemp(dir=self._supervisor.directory)) / "server.sock"
        if self._port == 0:
            self._choose_ports()

    def launch(self) -> None:
        """Start the process. Do not wait until it answers."""
        self.prepare()
        assert self._supervisor is not None
        self._write_config()
        self._log_start = self._log.stat().st_size if self._log.exists() else 0
        variables = allocator_variables(self._program)
        self._pid = self._supervisor.start(self._command(), self.directory, self._log, variables)

    def await_ready(self, timeout: float = START_TIMEOUT) -> bool:
        """Wait until the server answers. Return ``False`` if the server ended because its port was taken."""
        deadline = time.monotonic() + timeout
        while True:
            if not self.is_alive():
                if _ADDRESS_TAKEN in self.log_tail(100):
                    return False
                advice = f"\n{repair_advice(self.directory)}" if (self.directory / DIRECTORY).is_dir() else ""
                raise ServerUnsuitableError(f"{self._described()} did not start. It said:\n{self.log_tail()}{advice}")
            if self._answers():
                return True
            if time.monotonic() > deadline:
                said = self.log_tail()
                self.kill()
                raise ServerUnsuitableError(f"{self._described()} did not answer within {timeout:.0f} s.\n{said}")
            time.sleep(0.004)

    def _answers(self) -> bool:
        try:
            self.ask("PING", timeout=2)
            about = self.ask("INFO", "server", timeout=2)
        except ScriptRefusedError as error:
            return error.reply_code != "LOADING"  # a server that answers NOAUTH or NOPERM is up
        except OSError:
            return False
        # The answer may come from a server of another process that has the port. Then our server notices that its port
        # is taken, and ends.
        return isinstance(about, str) and f"process_id:{self._pid}\r" in about

    def _described(self) -> str:
        return f"The local server {self._program.path} ({self.url})"
