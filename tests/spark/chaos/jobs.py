"""A job of ``python -m sbredis.spark`` in processes of its own: Python, its JVM, and the Pythons that the JVM has."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from tests.waiting import wait_until
from tools.repository import ROOT

__all__ = ["Job", "Victim"]

Victim = Literal["jvm", "python", "all of them by Ctrl-C"]


class Job:
    """A running job, or another program of the tests. ``folder`` gets its output; the connection string is in its
    environment.
    """

    def __init__(self, url: str, folder: Path, *arguments: str, module: str | None = None) -> None:
        self._began = time.monotonic()
        self._log = folder / "log"
        self._log_start = self._log.stat().st_size if self._log.exists() else 0
        environment = {
            **os.environ,
            "SBREDIS_URL": url,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
        }
        program = ["sbredis.spark", *arguments, "--master", "local[2]"] if module is None else [module, *arguments]
        if module is not None:  # it is one of the tests, which are not installed
            environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        environment["PYSPARK_SUBMIT_ARGS"] = "--conf spark.ui.enabled=false pyspark-shell"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *program],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.family: set[int] = {self._process.pid}
        """All processes of the job that were seen."""

    @property
    def said(self) -> str:
        """What the job has printed."""
        with self._log.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode("utf-8", "replace")

    @property
    def age(self) -> float:
        """The number of seconds since the start."""
        return time.monotonic() - self._began

    @property
    def code(self) -> int | None:
        """The exit code; ``None`` while the job runs."""
        return self._process.poll()

    def until(self, condition: Callable[[], object], seconds: float = 300.0) -> bool:
        """Wait for a condition. Return whether the job still runs then; without a job nothing would come."""
        try:
            _wait(lambda: condition() or self.code is not None, seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.said[-3000:]}") from None
        return self.code is None

    def jvm(self) -> int | None:
        """Return the process id of the JVM, which is a child of the first Python; ``None`` before it runs.

        Before it, the job asks another Java for its version.
        """
        programs = _processes()
        self.family |= _descendants(self._process.pid, programs)
        found = [pid for pid, (parent, name) in programs.items() if parent == self._process.pid and name == "java"]
        return next((pid for pid in found if "org.apache.spark.deploy.SparkSubmit" in _arguments(pid)), None)

    def arguments_of_jvm(self) -> list[str]:
        """Return the command line of the JVM; it is empty if no JVM runs."""
        return _arguments(self.jvm() or 0)

    def kill(self, victim: Victim) -> bool:
        """Kill a process with SIGKILL, or do what Ctrl-C at a terminal does. Return whether it was there."""
        jvm = self.jvm()
        if victim == "all of them by Ctrl-C" and jvm is not None and self.code is None:
            os.killpg(self._process.pid, signal.SIGINT)
            return True
        pid = jvm if victim == "jvm" else self._process.pid
        if pid is None or self.code is not None:
            return False
        os.kill(pid, signal.SIGKILL)
        return True

    def wait(self, seconds: float = 300.0) -> int:
        """Wait for the end of the Python that was started, and return its exit code."""
        return self._process.wait(seconds)

    def _gone(self) -> bool:
        self._process.poll()
        return not self.family & _processes().keys()

    def wait_until_gone(self, seconds: float = 120.0) -> None:
        """Wait until all processes of the job that were seen have ended, also if one of them was killed."""
        _wait(self._gone, seconds, "a process of a job still runs")

    def end(self) -> None:
        """Kill what still runs."""
        self.jvm()
        for pid in self.family & _processes().keys():
            os.kill(pid, signal.SIGKILL)
        self._process.wait()


def _wait(condition: Callable[[], object], seconds: float, what: str = "") -> None:
    """Wait for a condition as :func:`wait_until` does, but look less often if a look takes long.

    A look may read about all processes. Without pauses, looks would take a core from the job for which they wait.
    """

    def look() -> object:
        began = time.monotonic()
        found = condition()
        if not found:
            time.sleep(min(1.0, 4 * (time.monotonic() - began)))
        return found

    wait_until(look, seconds, what)


def _arguments(pid: int) -> list[str]:
    """Return the command line of a process; it is empty if the process has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text("utf-8", "replace").split("\0")
    except OSError:
        return []


def _processes() -> dict[int, tuple[int, str]]:
    """Return the parent and the program of each living process, as the kernel lists them.

    The program ps is not used, because a small Debian does not have it.
    """
    found: dict[int, tuple[int, str]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                before, _, after = (entry / "stat").read_text("utf-8", "replace").rpartition(")")
            except OSError:
                continue  # this process has ended
            state, parent = after.split()[:2]
            if state not in "ZX":
                found[int(entry.name)] = int(parent), before.partition("(")[2]
    return found


def _descendants(pid: int, programs: dict[int, tuple[int, str]]) -> set[int]:
    found: set[int] = set()
    more = {pid}
    while more:
        found |= more
        more = {each for each, (parent, _) in programs.items() if parent in more} - found
    return found
