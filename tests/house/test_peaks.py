"""Tests that a run reports the peak memory of its processes, and fails above the limit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.plugins import memory


def session(exitstatus: int = pytest.ExitCode.OK) -> Any:
    return SimpleNamespace(config=SimpleNamespace(), exitstatus=exitstatus)


def summary(found: memory.Memory) -> list[str]:
    """Return the lines that the plugin prints at the end of a run."""
    lines: list[str] = []
    found.pytest_terminal_summary(
        SimpleNamespace(section=lines.append, write_line=lambda line, **_: lines.append(line))  # type: ignore[arg-type]
    )
    return lines


def test_the_peak_is_read_from_the_status_file_of_the_process() -> None:
    assert memory.peak_in("Name:\tpython\nVmPeak:\t  900000 kB\nVmHWM:\t  204800 kB\n") == 200
    assert memory.peak_in("Name:\tpython\n") is None


@pytest.mark.parametrize(
    ("peak", "exitstatus"), [(memory.LIMIT, pytest.ExitCode.OK), (memory.LIMIT + 1, pytest.ExitCode.TESTS_FAILED)]
)
def test_a_process_above_the_memory_limit_fails_the_run(
    peak: int, exitstatus: pytest.ExitCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "peak", lambda: peak)
    found, run = memory.Memory(), session()
    found.pytest_sessionfinish(run)
    assert run.exitstatus == exitstatus
    assert summary(found)[1] == f"main {peak} MB"
    assert len(summary(found)) == (2 if exitstatus == pytest.ExitCode.OK else 3)


def worker_node(**fields: object) -> Any:
    """Return an object that acts as a worker of pytest-xdist."""
    return SimpleNamespace(gateway=SimpleNamespace(id="gw0"), **fields)


def test_a_worker_reports_its_peak_memory_to_the_main_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "peak", lambda: 7)
    output: dict[str, object] = {}
    worker = session()
    worker.config.workeroutput = output
    memory.Memory().pytest_sessionfinish(worker)
    found = memory.Memory()
    found.pytest_testnodedown(worker_node(workeroutput=output))
    assert summary(found) == ["peak memory", "gw0 7 MB"]


def test_a_worker_that_died_has_no_peak_memory() -> None:
    found = memory.Memory()
    found.pytest_testnodedown(worker_node())
    assert summary(found) == []
