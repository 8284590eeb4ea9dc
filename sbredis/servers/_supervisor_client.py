"""The owner's side of the supervisor: one supervisor for each process, started with its first server."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from sbredis.exceptions import ServerUnsuitableError
from sbredis.servers._spawn import python_command, python_environment

__all__ = ["SupervisorClient", "supervisor"]


class SupervisorClient:
    """A running supervisor. All methods may be called from any thread."""

    directory: Path
    """A folder for files that must not outlive this process."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._exited: dict[int, int] = {}
        self._answers: dict[int, dict[str, Any]] = {}
        self._unread = b""
        self._requests = 0
        self._gone = False
        self._process = subprocess.Popen(
            python_command("_supervisor"),
            env=python_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input = self._process.stdin
        self._output = self._process.stdout
        greeting = self._next_message(time.monotonic() + 30)
        if greeting is None:
            self.close()
            raise ServerUnsuitableError(
                "The supervisor process of the local servers did not start. Its message is on standard error."
            )
        self.directory = Path(greeting["directory"])

    @property
    def pid(self) -> int:
        """The supervisor's process id."""
        return self._process.pid

    @property
    def is_gone(self) -> bool:
        """Whether the supervisor has ended, and with it all its servers."""
        with self._lock:
            self._drain()
            return self._gone

    def start(
        self, command: list[str], directory: Path, log: Path, environment: Mapping[str, str] = MappingProxyType({})
    ) -> int:
        """Start a server, and return its process id. Its output is added to ``log``.

        ``environment`` has variables for the server alone.
        """
        with self._lock:
            request = {"start": command, "directory": str(directory), "log": str(log), "environment": {**environment}}
            answer = self._request(request)
            if "error" in answer:
                raise ServerUnsuitableError(f"{command[0]} cannot be started: {answer['error']}")
            pid: int = answer["pid"]
            self._exited.pop(pid, None)  # an earlier server may have had the same process id
        return pid

    def signal(self, pid: int, number: int) -> None:
        """Send a signal to a server that this supervisor started. Does nothing if the server has exited."""
        with contextlib.suppress(ServerUnsuitableError):  # if the supervisor has ended, its servers have ended too
            self._request({"signal": int(number), "pid": pid})

    def exit_code(self, pid: int) -> int | None:
        """Return the exit code of a server (negative: the signal that ended it); ``None`` while it runs."""
        with self._lock:
            self._drain()
            return self._exited.get(pid, -signal.SIGKILL if self._gone else None)

    def wait(self, pid: int, timeout: float) -> int | None:
        """Wait until a server has exited. Return its exit code, or ``None`` when the time is up."""
        deadline = time.monotonic() + timeout
        while (code := self.exit_code(pid)) is None and (left := deadline - time.monotonic()) > 0:
            select.select([self._output], [], [], min(left, 0.05))
        return code

    def close(self) -> None:
        """End the supervisor and all of its servers, and wait for it."""
        with self._lock:
            self._gone = True
            self._input.close()
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._output.close()

    def forget(self) -> None:
        """Release the supervisor in a forked child. It belongs to the parent, and must notice when the parent dies."""
        self._lock = threading.RLock()  # another thread of the parent may have held the old lock during the fork
        self._gone = True
        self._input.close()
        self._output.close()
        self._process.returncode = 0  # it is not a child of this process, so there is nothing to wait for

    def _request(self, request: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            self._requests += 1
            number = self._requests
            with contextlib.suppress(OSError, ValueError):
                self._input.write(json.dumps({"id": number, **request}).encode() + b"\n")
                deadline = time.monotonic() + 30
                while number not in self._answers and self._note(self._next_message(deadline)):
                    pass
            if number not in self._answers:
                raise ServerUnsuitableError(
                    "The supervisor process of the local servers has ended, and with it its servers."
                )
            return self._answers.pop(number)

    def _drain(self) -> None:
        while not self._gone and (b"\n" in self._unread or select.select([self._output], [], [], 0)[0]):
            self._note(self._next_message(time.monotonic() + 30))

    def _note(self, message: dict[str, Any] | None) -> bool:
        if message is None:
            self._gone = True
        elif "exited" in message:
            self._exited[message["exited"]] = message["code"]
        else:
            self._answers[message["id"]] = message
        return message is not None

    def _next_message(self, deadline: float) -> dict[str, Any] | None:
        """Return the supervisor's next line; ``None`` at the end."""
        while b"\n" not in self._unread:
            if not select.select([self._output], [], [], max(0.0, deadline - time.monotonic()))[0]:
                return None
            received = os.read(self._output.fileno(), 65536)
            if not received:
                return None
            self._unread += received
        line, self._unread = self._unread.split(b"\n", 1)
        message: dict[str, Any] = json.loads(line)
        return message


class _Current:
    """This process's supervisor, if it has one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._supervisor: SupervisorClient | None = None
        self._directories: list[Path] = []

    def get(self) -> SupervisorClient:
        with self._lock:
            if self._supervisor is None or self._supervisor.is_gone:
                if self._supervisor is not None:
                    self._supervisor.close()
                self._supervisor = SupervisorClient()
                self._directories.append(self._supervisor.directory)
            return self._supervisor

    def close(self) -> None:
        if self._supervisor is not None:
            self._supervisor.close()
        # A killed supervisor has left its folder. The folder is removed only now, because its servers may have used it.
        for directory in self._directories:
            shutil.rmtree(directory, ignore_errors=True)

    def forget(self) -> None:
        self._lock = threading.Lock()  # another thread of the parent may have held the old lock during the fork
        if self._supervisor is not None:
            self._supervisor.forget()
            self._supervisor = None
        self._directories.clear()


_current = _Current()
atexit.register(_current.close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_current.forget)


def supervisor() -> SupervisorClient:
    """Return this process's supervisor. Start one if there is none yet, or if the last one was killed."""
    return _current.get()
