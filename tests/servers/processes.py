"""Processes for the tests of this folder: they start servers as owners or clients, and tests kill them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sbredis.servers._spawn import python_environment

LINUX = sys.platform.startswith("linux")


def is_running(pid: int) -> bool:
    """Return whether a process exists and is no zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return not LINUX


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def servers_in(folder: Path) -> set[int]:
    """Return the servers that run in a folder, from the kernel's list of processes."""
    return {pid for pid, name in _processes_in(folder) if name in ("valkey-server", "redis-server")}


def processes_in(folder: Path) -> set[int]:
    """Return all processes that run in a folder: servers and supervisors."""
    return {pid for pid, _ in _processes_in(folder)}


def _processes_in(folder: Path) -> Iterator[tuple[int, str]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if (entry / "cwd").readlink() == folder:
                    yield int(entry.name), (entry / "comm").read_text().strip()
            except OSError:
                continue  # this process has ended, or belongs to another user


class Script:
    """A Python process that runs some code and prints one JSON object a line, by calling ``say``."""

    def __init__(self, code: str, *arguments: str) -> None:
        prelude = (
            "import json, signal, sys, time\n"
            "signal.signal(signal.SIGINT, signal.default_int_handler)  # a run in the background has it ignored\n"
            "def say(**what): print(json.dumps(what), flush=True)\n"
        )
        self.process = subprocess.Popen(
            [sys.executable, "-c", prelude + code, *arguments],
            env=python_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # so that a signal to its group reaches it and the processes that it starts
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    def hear(self) -> dict[str, Any]:
        """Return the next object that the process prints."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the script ended with {self.process.wait()} and said nothing more"
        said: dict[str, Any] = json.loads(line)
        return said

    def hear_all(self) -> list[dict[str, Any]]:
        """Return all objects that the process prints until it ends, without the unfinished line of a killed process."""
        assert self.process.stdout is not None
        lines = self.process.stdout.readlines()
        self.process.wait()
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def go_on(self) -> None:
        """Let the process go on that waits for a line."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def kill(self, number: int = signal.SIGKILL) -> None:
        self.process.send_signal(number)

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


@contextmanager
def script(code: str, *arguments: str) -> Iterator[Script]:
    """Run a :class:`Script`, and kill it at the end if it still runs."""
    running = Script(code, *arguments)
    try:
        yield running
    finally:
        running.close()
