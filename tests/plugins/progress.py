"""A pytest plugin that tells how far a run is: with ``--progress=NAME``, it names each failure at once, and every
:data:`EVERY` seconds says how many tests are done and which one has run for longest.

The lines go to the file descriptor 3 if it is open for writing, else to the standard output. So ``tools/side-by-side``
can collect the outputs of several runs in files, and still show the progress of all of them. pytest itself then prints
neither letters nor words. ``addopts`` in pyproject.toml loads the plugin.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Protocol

import pytest

EVERY = 20.0
"""The seconds between two lines about the progress."""

LONG = 30.0
"""The seconds for which a test may run before a line names it."""

TOLD_TO = 3
"""The file descriptor that gets the lines, if it is open."""

LONGEST_REASON = 160
"""The maximum number of characters of the reason of a failure."""


@dataclass
class Tally:
    """The state of a run. Times are seconds of a monotonic clock."""

    name: str
    began: float
    total: int = 0
    done: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    running: dict[str, float] = field(default_factory=dict)
    """The tests that run now, each with the time of its start."""

    def start(self, test: str, now: float) -> None:
        self.running[test] = now

    def finish(self, test: str) -> None:
        self.running.pop(test, None)
        self.done.add(test)

    def fail(self, test: str, part: str, reason: str, now: float) -> str:
        """Note a failure, and return the line that tells it. A test whose setup or teardown fails is an error."""
        self.failed.add(test)
        said = " ".join(reason.split())
        if len(said) > LONGEST_REASON:
            said = said[: LONGEST_REASON - 1] + "…"
        word = "FAILED" if part == "call" else f"ERROR in {part}"
        return f"{self._clock(now)} {self.name}: {word} {test}{' - ' if said else ''}{said}"

    def line(self, now: float) -> str:
        """Return the line that tells how far the run is."""
        if not self.total:
            return f"{self._clock(now)} {self.name}: collecting the tests"
        said = f"{self._clock(now)} {self.name}: {len(self.done):,} of {self.total:,} tests, {len(self.failed)} failed"
        test, since = min(self.running.items(), key=lambda each: each[1], default=("", now))
        return said if now - since < LONG else f"{said}; for {now - since:.0f} s: {test}"

    def _clock(self, now: float) -> str:
        return f"{int(now - self.began) // 60:3d}:{int(now - self.began) % 60:02d}"


class Progress:
    """The plugin of a run: it keeps the tally, and prints lines from a thread of its own."""

    def __init__(self, name: str, write: Callable[[str], object]) -> None:
        self.tally = Tally(name, time.monotonic())
        self._write = write
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._tell, name="progress", daemon=True)

    def _tell(self) -> None:
        while not self._ended.wait(EVERY):
            with self._lock:
                line = self.tally.line(time.monotonic())
            self._write(line)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self) -> Generator[None, object, object]:
        self._thread.start()
        try:
            return (yield)
        finally:
            self._ended.set()
            self._thread.join()
            self._write(self.tally.line(time.monotonic()))

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Count the tests. Of a run with workers, :meth:`pytest_xdist_node_collection_finished` counts them."""
        self.tally.total = max(self.tally.total, len(session.items))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: object, ids: list[str]) -> None:  # noqa: ARG002 -- its name
        self.tally.total = max(self.tally.total, len(ids))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        with self._lock:
            self.tally.start(nodeid, time.monotonic())

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        with self._lock:
            self.tally.finish(nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            with self._lock:
                line = self.tally.fail(report.nodeid, report.when, reason_of(report), time.monotonic())
            self._write(line)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            with self._lock:
                line = self.tally.fail(report.nodeid, "collection", reason_of(report), time.monotonic())
            self._write(line)

    @pytest.hookimpl(wrapper=True)
    def pytest_report_teststatus(self) -> Generator[None, tuple[str, object, object], tuple[str, str, str]]:
        """Leave out the letter or the word that pytest prints for each test."""
        category, *_ = yield
        return category, "", ""


class Crashed(Protocol):
    """The place of an error, as pytest reports it."""

    message: str


def reason_of(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Return what a failure says: the message of its exception, or the first line of a text."""
    crash: Crashed | None = getattr(report.longrepr, "reprcrash", None)
    said = str(report.longrepr or "") if crash is None else crash.message
    return next((line for line in said.splitlines() if line.strip()), "")


def is_writable(number: int) -> bool:
    """Return whether a file descriptor is open for writing."""
    try:
        return fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY
    except OSError:
        return False


def writer() -> Callable[[str], object]:
    """Return a function that writes a line to the file descriptor 3, or to the standard output if 3 is not open.

    It bypasses the capturing of pytest, and a line is one write, so that the lines of several runs do not mix.
    """
    number = os.dup(TOLD_TO if is_writable(TOLD_TO) else 1)
    return lambda line: os.write(number, f"{line}\n".encode())


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option of this plugin; pytest calls this before it reads the command line."""
    parser.addoption("--progress", metavar="NAME", help="name failures at once, and tell how far the run NAME is")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Start telling; pytest calls this when it starts. The workers of a run do not tell, because the run does."""
    name = config.getoption("progress")
    if name and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Progress(name, writer()), "sbredis-progress")
