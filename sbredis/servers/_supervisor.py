"""The supervisor: a process that starts servers for its owner, and ends them when the owner ends, even if the owner is
killed.

It reads requests from its standard input and answers on its standard output, one JSON object a line::

    →  {"id": 1, "start": ["/usr/bin/valkey-server", "server.conf"], "directory": "/tmp/…", "log": "/tmp/…/server.log",
       "environment": {}}
    ←  {"id": 1, "pid": 4711}                      or  {"id": 1, "error": "…"}
    →  {"id": 2, "signal": 9, "pid": 4711}
    ←  {"id": 2}                                   done, or not needed because that process has exited
    ←  {"exited": 4711, "code": -9}                unasked, when a server has exited

Its first line is ``{"directory": "/tmp/sbredis-…"}``: a folder for its owner. The supervisor removes the folder with
everything in it when it ends.

The owner holds the other end of the supervisor's standard input. When that end closes, the owner has ended, and the
supervisor ends all servers. When the supervisor itself is killed, the kernel ends them (Linux). The supervisor lives in
a session of its own, so a Ctrl-C reaches only the owner, which can then close in order. Only the supervisor sends
signals to servers: as their parent, it knows whether a process id still belongs to a server.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from sbredis.servers._spawn import dies_with_parent, server_environment

__all__ = ["main"]

GRACE = 5.0
"""Seconds that a server has to end by itself before it is killed."""


def main() -> None:
    """Run a supervisor until its standard input is closed or it is sent SIGTERM."""
    supervisor = _ServerSupervisor()
    try:
        supervisor.run()
    finally:
        supervisor.end()


def _wake(*_: object) -> None:
    """Do nothing: the signal only has to end the wait."""


class _ServerSupervisor:
    def __init__(self) -> None:
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._unread = b""
        self._asked_to_end = False
        self._before_exec = dies_with_parent(signal.SIGKILL)
        self._directory = tempfile.mkdtemp(prefix="sbredis-")

    def run(self) -> None:
        wake_reader, wake_writer = os.pipe()
        os.set_blocking(wake_reader, False)
        os.set_blocking(wake_writer, False)
        signal.set_wakeup_fd(wake_writer)
        # Use handlers and not SIG_IGN: the servers would inherit an ignored signal.
        signal.signal(signal.SIGCHLD, _wake)
        signal.signal(signal.SIGINT, _wake)
        signal.signal(signal.SIGTERM, self._on_terminate)
        selector = selectors.DefaultSelector()
        selector.register(0, selectors.EVENT_READ)
        selector.register(wake_reader, selectors.EVENT_READ)
        self._say({"directory": self._directory})
        while not self._asked_to_end:
            ready = {key.fd for key, _ in selector.select()}
            if wake_reader in ready:
                os.read(wake_reader, 4096)
            self._reap()
            if 0 in ready and not self._read():
                return

    def end(self) -> None:
        for child in self._children.values():
            with contextlib.suppress(ProcessLookupError):
                child.send_signal(signal.SIGTERM)
                child.send_signal(signal.SIGCONT)  # a stopped process ends only after it is continued
        deadline = time.monotonic() + GRACE
        for child in self._children.values():
            try:
                child.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _on_terminate(self, *_: object) -> None:
        self._asked_to_end = True

    def _read(self) -> bool:
        """Read the input that has arrived. Return ``False`` at the end, when the owner has ended."""
        received = os.read(0, 65536)
        *lines, self._unread = (self._unread + received).split(b"\n")
        for line in lines:
            request = json.loads(line)
            self._say({"id": request["id"], **self._answer(request)})
        return bool(received)

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        if "start" in request:
            return self._start(request["start"], request["directory"], request["log"], request["environment"])
        child = self._children.get(request["pid"])
        if child is not None:
            child.send_signal(request["signal"])  # send_signal does nothing if the child has exited
        return {}

    def _start(self, command: list[str], directory: str, log: str, environment: dict[str, str]) -> dict[str, Any]:
        try:
            with Path(log).open("ab") as output:
                child = subprocess.Popen(
                    command,
                    cwd=directory,
                    env={**server_environment(), **environment},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    preexec_fn=self._before_exec,  # noqa: PLW1509 - this process has one thread
                )
        except (OSError, subprocess.SubprocessError) as error:
            return {"error": str(error)}
        self._children[child.pid] = child
        return {"pid": child.pid}

    def _reap(self) -> None:
        for pid, child in list(self._children.items()):
            code = child.poll()
            if code is not None:
                del self._children[pid]
                self._say({"exited": pid, "code": code})

    @staticmethod
    def _say(message: dict[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError):  # if the owner has ended, the end of our input follows
            os.write(1, json.dumps(message).encode() + b"\n")
