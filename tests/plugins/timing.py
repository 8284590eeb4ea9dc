"""A pytest plugin that ends a run with a table of the time that each folder of tests took.

``addopts`` in pyproject.toml loads the plugin. The time of a fixture counts for the test that set it up or tore it
down.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass
class Part:
    """The results of one folder of tests."""

    seconds: float = 0.0
    outcomes: dict[str, str] = field(default_factory=dict)
    """The final outcome of each test: a failed setup or teardown overrides the outcome of the test itself."""

    slowest: tuple[float, str] = (0.0, "")

    def add(self, report: pytest.TestReport) -> None:
        self.seconds += report.duration
        if report.when == "call" or report.outcome != "passed":
            self.outcomes[report.nodeid] = report.outcome
        if report.duration > self.slowest[0]:
            self.slowest = (report.duration, report.nodeid.partition("::")[2])

    def count(self, outcome: str) -> int:
        return sum(1 for final in self.outcomes.values() if final == outcome)


def folder_of(nodeid: str) -> str:
    """Return the first two folders of a test's path. For ``tests/house/test_imports.py::test_rule`` this is
    ``tests/house``.
    """
    folder = PurePosixPath(nodeid.partition("::")[0]).parent
    return "/".join(folder.parts[:2]) or "."


def table(parts: dict[str, Part], wall: float) -> Iterable[str]:
    """Yield the lines of the closing table, the slowest folder first."""
    width = max(len("(all, wall clock)"), *(len(name) for name in parts))
    yield f"{'part':<{width}}  {'seconds':>8}  {'passed':>6}  {'failed':>6}  {'skipped':>7}  slowest"
    for name, part in sorted(parts.items(), key=lambda item: -item[1].seconds):
        counts = f"{part.count('passed'):>6}  {part.count('failed'):>6}  {part.count('skipped'):>7}"
        yield f"{name:<{width}}  {part.seconds:>8.1f}  {counts}  {part.slowest[0]:.1f} s {part.slowest[1]}"
    yield f"{'(all, wall clock)':<{width}}  {wall:>8.1f}"


class Timing:
    """Adds up the test reports of one run."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.parts: dict[str, Part] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.parts.setdefault(folder_of(report.nodeid), Part()).add(report)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.parts:
            return
        terminalreporter.section("time by part")
        for line in table(self.parts, time.monotonic() - self.started):
            terminalreporter.write_line(line)


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugin; pytest calls this when it starts."""
    config.pluginmanager.register(Timing(), "sbredis-timing")
