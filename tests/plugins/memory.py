"""A pytest plugin that prints the peak memory of each test process at the end of a run, and limits it.

``addopts`` in pyproject.toml loads the plugin. The peak is a figure of Linux (``VmHWM``). Other systems report none.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Protocol

import pytest
from hypothesis import strategies

GROWTH = 20
"""The megabytes by which the memory of a process may grow before garbage is collected after a test.

An in-memory server that is no longer used is part of a reference cycle. Lua holds most of its memory. Python only
counts objects, so it does not see this memory.
"""

LIMIT = 600
"""The memory limit of each process in megabytes. The tests of a part take up to 420 of them, and to collect the
12,000 tests takes 300 already.

A process above the limit fails the run, because a test or sbredis keeps objects that are no longer used.
"""


C = ctypes.CDLL(None) if sys.platform == "linux" else None
"""The C library of this process."""


class Node(Protocol):
    """The parts of a pytest-xdist worker that the plugin uses."""

    gateway: Gateway
    workeroutput: dict[str, object]


class Gateway(Protocol):
    id: str


def peak() -> int | None:
    """Return the peak memory of this process, in megabytes; None if the system does not report it."""
    return own_figure("VmHWM")


def used() -> int | None:
    """Return the present memory of this process, in megabytes; None if the system does not report it."""
    return own_figure("VmRSS")


def own_figure(figure: str) -> int | None:
    """Return a figure of the memory of this process, in megabytes; None if the system does not report it."""
    status = Path("/proc/self/status")
    return figure_in(status.read_text("utf-8"), figure) if status.exists() else None


def figure_in(status: str, figure: str) -> int | None:
    """Return a figure that ``/proc/…/status`` reports in kilobytes, in megabytes."""
    lines = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    return int(lines[figure].split()[0]) // 1024 if figure in lines else None


def give_back() -> None:
    """Give free memory back to the system, if the C library is glibc.

    Each thread of a test, such as that of a synchronous client, gets memory from an area of its own. glibc keeps this
    area after the thread has ended. In a long run, such areas would take a quarter of the memory.
    """
    trim = getattr(C, "malloc_trim", None)
    if trim is not None:
        trim(0)


class Memory:
    """Collects the peaks of one run."""

    def __init__(self) -> None:
        self.peaks: dict[str, int] = {}
        self.collected = 0
        """The memory in use after the last collection, in megabytes."""

    @property
    def exceeded(self) -> dict[str, int]:
        return {name: peak for name, peak in self.peaks.items() if peak > LIMIT}

    @pytest.hookimpl(trylast=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Let Hypothesis list the characters of UTF-8 in the main process, before workers start. This takes 200 MB.

        Hypothesis makes this list once in a checkout, and stores it in ``.hypothesis``.
        """
        if not hasattr(session.config, "workerinput"):
            strategies.characters(codec="utf-8").validate()

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Generator[None, object, object]:
        """Collect no garbage meanwhile: nearly all that is made stays, and each look at all of it finds nothing."""
        gc.disable()
        try:
            return (yield)
        finally:
            gc.enable()

    def pytest_collection_finish(self) -> None:
        """Hide the modules and the thousands of test items from the garbage collector.

        Otherwise every full collection would visit them. Python would also wait with a full collection until the number
        of objects has grown by a quarter.
        """
        gc.collect()
        gc.freeze()
        self.collected = used() or 0

    def pytest_runtest_logfinish(self) -> None:
        if (used() or 0) - self.collected > GROWTH:
            gc.collect()
            give_back()
            self.collected = used() or 0

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Node) -> None:
        """Record the peak memory of a worker; pytest-xdist calls this in the main process when the worker ends."""
        reported = getattr(node, "workeroutput", {}).get("peak")
        if isinstance(reported, int):
            self.peaks[node.gateway.id] = reported

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        own = peak()
        output: dict[str, object] | None = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["peak"] = own
        elif own is not None:
            self.peaks["main"] = own
        if self.exceeded and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.peaks:
            return
        terminalreporter.section("peak memory")
        terminalreporter.write_line(", ".join(f"{name} {peak} MB" for name, peak in sorted(self.peaks.items())))
        for name, found in sorted(self.exceeded.items()):
            terminalreporter.write_line(f"FAILED: {name} used {found} MB, more than {LIMIT} MB", red=True)


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugin; pytest calls this when it starts."""
    config.pluginmanager.register(Memory(), "sbredis-memory")
